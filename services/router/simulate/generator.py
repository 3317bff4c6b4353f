"""Made-up workloads: arrivals, and a mix of requests."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from services.router.core.job import StageSeconds
from services.router.simulate.requests import REQUESTS
from services.router.simulate.workload import SimulatedJob, job_id


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Jobs come at `rate` a second on average, at random (Poisson).

    With `burst_factor` above 1 they come in bursts of `burst_s` on average, so many times as fast, and not between.
    """

    rate: float
    burst_factor: float = 1.0
    burst_s: float = 60.0

    def __post_init__(self) -> None:
        if not (0 < self.rate < inf and 1 <= self.burst_factor < inf and 0 < self.burst_s < inf):
            raise ValueError("arrivals: rate and burst seconds must be above 0, the burst factor 1 or more")

    def times(self, random: Random) -> Iterator[float]:
        """Times of arrival, for ever."""
        now = 0.0
        while True:
            if self.burst_factor == 1.0:
                now += random.expovariate(self.rate)
                yield now
                continue
            end_s = now + random.expovariate(1 / self.burst_s)
            while (now := now + random.expovariate(self.rate * self.burst_factor)) < end_s:
                yield now
            now = end_s + random.expovariate(1 / (self.burst_s * (self.burst_factor - 1)))


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a mix: jobs of one kind, each drawn from `choices`, as many as `weight` says beside the others."""

    kind: str
    choices: tuple[StageSeconds, ...]
    weight: float


def parse_mix(text: str, known: Mapping[str, StageSeconds] | None = None) -> tuple[Share, ...]:
    """`"image:2/3/6=0.8,flux-1024=0.2"`: kinds with seconds, or names of requests, each with its weight.

    `known` has seconds of further names. Raises `ValueError` that says which part is wrong.
    """
    requests = {**REQUESTS, **(known or {})}
    return tuple(_share(part.strip(), requests) for part in text.split(","))


def generate(arrivals: Arrivals, mix: Sequence[Share], job_count: int, random: Random) -> list[SimulatedJob]:
    """So many jobs. The model of each is its kind."""
    weights = [share.weight for share in mix]
    times = arrivals.times(random)
    jobs = []
    for number in range(job_count):
        share = random.choices(mix, weights)[0]
        jobs.append(SimulatedJob(job_id(number), next(times), share.kind, random.choice(share.choices), share.kind))
    return jobs


def _share(part: str, requests: Mapping[str, StageSeconds]) -> Share:
    name, _, weight_text = part.partition("=")
    kind, _, seconds_text = name.partition(":")
    try:
        weight = float(weight_text) if weight_text else 1.0
        choices = tuple(StageSeconds(0.0, float(text), 0.0) for text in seconds_text.split("/") if text)
    except ValueError as error:
        raise ValueError(f"mix: {part!r} is not KIND:SECONDS[/SECONDS]=WEIGHT") from error
    if not 0 < weight < inf:
        raise ValueError(f"mix: the weight of {part!r} must be above 0")
    if not choices:
        if kind not in requests:
            raise ValueError(f"mix: no request is called {kind!r}; known: {', '.join(requests)}; or say {kind}:SECONDS")
        choices = (requests[kind],)
    return Share(kind, choices, weight)
