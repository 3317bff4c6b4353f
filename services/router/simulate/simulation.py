"""One run: a workload, a fleet and a policy in, what became of every job out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from services.router.core.config import POLICIES, SchedulerConfig
from services.router.core.events import JobSubmitted, WorkerLost, WorkerSeen
from services.router.core.job import JobRequest, Stage, StageSeconds
from services.router.core.scheduler import Scheduler
from services.router.simulate.clock import VirtualClock
from services.router.simulate.device import Span
from services.router.simulate.groups import speedup
from services.router.simulate.machines import MachineModel
from services.router.simulate.pricing import ExactPricing, Pricing, scaled
from services.router.simulate.settings import FleetSettings, PolicySettings, scheduler_config
from services.router.simulate.workload import SimulatedJob

PROGRESS_S = 1.0
"""Running tasks report about this often, as steps of a network do."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job. `refusal` is why it was not let in, "" if it was; times are None if it never got there.

    `wait_s` is until its denoise began, `predicted_wait_s` what it was told of that when it came.
    """

    job: SimulatedJob
    refusal: str = ""
    succeeded: bool = False
    wait_s: float | None = None
    predicted_wait_s: float | None = None
    finish_s: float | None = None

    @property
    def latency_s(self) -> float:
        """From its arrival to its end; infinity if it did not succeed."""
        return self.finish_s - self.job.arrival_s if self.succeeded and self.finish_s is not None else inf

    @property
    def delay_s(self) -> float:
        """What it took beyond its own time."""
        return self.latency_s - self.job.service_s


@dataclass(frozen=True)
class Run:
    """A simulation that is over. `spans` are what the workers ran, if they were asked for."""

    policy: PolicySettings
    fleet: FleetSettings
    outcomes: tuple[Outcome, ...]
    busy_s: float
    span_s: float
    spans: tuple[Span, ...] = ()

    @property
    def utilisation(self) -> float:
        """The part of the denoisers' time, from the first arrival to the last end, in which they ran something."""
        return self.busy_s / (self.fleet.denoiser_count * self.span_s) if self.span_s else 0.0


def simulate(
    jobs: Sequence[SimulatedJob],
    policy: PolicySettings,
    fleet: FleetSettings,
    *,
    pricing: Pricing | None = None,
    seed: int = 0,
    record_spans: bool = False,
    on_job: Callable[[], None] | None = None,
    config: SchedulerConfig | None = None,
) -> Run:
    """Run the jobs. `on_job` is called as each ends or is refused. `config`: the router's, else the shipped one.

    Raises `ValueError` for pools that do not fit.
    """
    simulation = _Simulation(jobs, policy, fleet, pricing or ExactPricing(), record_spans, on_job, config)
    simulation.plan_losses(Random(f"losses {seed}"))
    return simulation.run()


class _Simulation:
    def __init__(
        self,
        jobs: Sequence[SimulatedJob],
        policy: PolicySettings,
        fleet: FleetSettings,
        pricing: Pricing,
        record_spans: bool,
        on_job: Callable[[], None] | None,
        config: SchedulerConfig | None,
    ) -> None:
        self._jobs = {job.job_id: job for job in jobs}
        self._policy = policy
        self._fleet = fleet
        self._pricing = pricing
        self._on_job = on_job
        self._spans: list[Span] | None = [] if record_spans else None
        self._models = sorted({job.model for job in jobs})
        self._kinds = sorted({job.kind for job in jobs})
        self._speeds = self._pool_speeds()
        self._clock = VirtualClock(
            Scheduler(scheduler_config(policy, fleet, _models_by_kind(jobs), config)),
            MachineModel(fleet.block_s, dict.fromkeys(self._models, fleet.load_s), fleet.checkpoint_s),
            truth={job.job_id: self._staged(job.seconds) for job in jobs},
            progress_s=PROGRESS_S,
            spans=self._spans,
            on_finish=self._finished,
        )
        self._workers = list(fleet.worker_infos(self._models))
        self._clock.fleet(*self._workers)
        for job in jobs:
            self._clock.at(job.arrival_s, _Arrival(self, job))

    def plan_losses(self, random: Random) -> None:
        """Let denoisers fail, and come back, until the last job has come."""
        last_s = max(job.arrival_s for job in self._jobs.values())
        denoisers = [info for info in self._workers if info.stage is Stage.DENOISE]
        for info in denoisers if self._fleet.mtbf_s < inf else ():
            now = random.expovariate(1 / self._fleet.mtbf_s)
            while now < last_s:
                self._clock.at(now, WorkerLost(info.worker_id))
                self._clock.at(now + self._fleet.repair_s, WorkerSeen(info))
                now += self._fleet.repair_s + random.expovariate(1 / self._fleet.mtbf_s)

    def run(self) -> Run:
        clock = self._clock
        clock.run()
        outcomes = tuple(self._outcome(job) for job in self._jobs.values())
        first_s = min(job.arrival_s for job in self._jobs.values())
        span_s = max(clock.finishes.values(), default=first_s) - first_s
        busy_s = clock.machines.busy_s(Stage.DENOISE)
        return Run(self._policy, self._fleet, outcomes, busy_s, span_s, tuple(self._spans or ()))

    def submission(self, job: SimulatedJob) -> JobSubmitted:
        """The job as the router prices it on its arrival."""
        estimate = scaled(self._staged(self._pricing.price(job)), 1 / self._speeds.get(job.kind, 1.0))
        tenant = job.job_id if self._policy.no_tenants else job.tenant
        stages = frozenset({Stage.DENOISE, *_stages_of(self._staged(job.seconds))})
        request = JobRequest(
            job.job_id, tenant, job.model, "standard", estimate, deadline_s=job.deadline_s, stages=stages
        )
        return JobSubmitted(request)

    def _staged(self, seconds: StageSeconds) -> StageSeconds:
        """Work of stages that have no workers of their own is the denoiser's."""
        encode_s = seconds.encode_s if self._fleet.encoders else 0.0
        decode_s = seconds.decode_s if self._fleet.decoders else 0.0
        denoise_s = seconds.denoise_s
        if not self._fleet.encoders:
            denoise_s += seconds.encode_s
        if not self._fleet.decoders:
            denoise_s += seconds.decode_s
        return StageSeconds(encode_s, denoise_s, decode_s)

    def _pool_speeds(self) -> dict[str, float]:
        """How fast the workers are that jobs of a kind are priced for."""
        if not self._fleet.pools:
            return dict.fromkeys(self._kinds, speedup(self._fleet.cards))
        pooled = POLICIES[self._policy.policy].pooled
        return {pool.kind: speedup(pool.cards) for pool in self._fleet.pools if pooled}

    def _finished(self, job_id: str) -> None:
        self._pricing.observe(self._jobs[job_id])
        if self._on_job is not None:
            self._on_job()

    def _outcome(self, job: SimulatedJob) -> Outcome:
        clock, job_id = self._clock, job.job_id
        if job_id in clock.refused:
            return Outcome(job, refusal=clock.refused[job_id].reason)
        succeeded = clock.outcomes.get(job_id) == "succeeded"
        waits = clock.waits.get(job_id), clock.predicted_waits.get(job_id)
        return Outcome(job, "", succeeded, *waits, clock.finishes.get(job_id))


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A job that is priced when it comes, by what was learnt until then."""

    simulation: _Simulation
    job: SimulatedJob

    def __call__(self) -> JobSubmitted:
        return self.simulation.submission(self.job)


def _stages_of(seconds: StageSeconds) -> Iterator[Stage]:
    """The stages beside the denoise in which there is something to do."""
    if seconds.encode_s > 0:
        yield Stage.ENCODE
    if seconds.decode_s > 0:
        yield Stage.DECODE


def _models_by_kind(jobs: Iterable[SimulatedJob]) -> dict[str, tuple[str, ...]]:
    models: dict[str, set[str]] = {}
    for job in jobs:
        models.setdefault(job.kind, set()).add(job.model)
    return {kind: tuple(sorted(names)) for kind, names in sorted(models.items())}
