"""What the simulated router believes of a job before it runs: the truth, the truth with an error, or what it learnt."""

from dataclasses import dataclass, field
from math import exp
from random import Random
from typing import Protocol

from services.router.core.job import StageSeconds
from services.router.simulate.trace_estimator import TraceEstimator, TraceRequest
from services.router.simulate.workload import SimulatedJob


class Pricing(Protocol):
    """Prices jobs, and hears what they took."""

    def price(self, job: SimulatedJob) -> StageSeconds:
        """Estimated seconds on one card."""

    def observe(self, job: SimulatedJob) -> None:
        """The job has ended."""


class ExactPricing:
    """Knows the truth."""

    def price(self, job: SimulatedJob) -> StageSeconds:
        return job.seconds

    def observe(self, job: SimulatedJob) -> None:
        """Learns nothing."""


@dataclass
class NoisyPricing:
    """The truth times a log-normal factor of median 1, whose logarithm has the standard deviation `sigma`."""

    sigma: float
    random: Random

    def price(self, job: SimulatedJob) -> StageSeconds:
        return scaled(job.seconds, exp(self.random.gauss(0.0, self.sigma)))

    def observe(self, job: SimulatedJob) -> None:
        """Learns nothing."""


@dataclass
class LearntPricing:
    """What the estimator has learnt of the jobs that have ended, by what their requests tell."""

    estimator: TraceEstimator = field(default_factory=TraceEstimator)

    def price(self, job: SimulatedJob) -> StageSeconds:
        return StageSeconds(0.0, self.estimator.estimate(request_of(job)), 0.0)

    def observe(self, job: SimulatedJob) -> None:
        self.estimator.observe(request_of(job), job.service_s)


def request_of(job: SimulatedJob) -> TraceRequest:
    """What may be known of a job before it runs; of one that is not from a trace its model alone."""
    return job.request or TraceRequest(job.model)


def scaled(seconds: StageSeconds, factor: float) -> StageSeconds:
    """All stages times a factor."""
    return StageSeconds(seconds.encode_s * factor, seconds.denoise_s * factor, seconds.decode_s * factor)
