"""When the jobs of a mixed load come: drawn once, kept as a workload that `triptych simulate` reads."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from random import Random

from services.router.core.job import StageSeconds
from services.router.simulate.workload import SimulatedJob, job_id, read_workload

SHORT, LONG = "short", "long"
KINDS = (SHORT, LONG)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job of a kind that comes so many seconds after the beginning."""

    arrival_s: float
    kind: str


def draw_arrivals(short_count: int, long_count: int, seed: int) -> list[Arrival]:
    """So many of each, in random order, one a second on average, at random (Poisson); the same for the same seed."""
    random = Random(f"arrivals {seed}")
    kinds = [SHORT] * short_count + [LONG] * long_count
    random.shuffle(kinds)
    times = accumulate(random.expovariate(1.0) for _ in kinds)
    return [Arrival(arrival_s, kind) for arrival_s, kind in zip(times, kinds, strict=True)]


def load_of(arrivals: Sequence[Arrival], work_s: Mapping[str, float]) -> float:
    """Seconds of work a second, up to the last arrival."""
    return sum(work_s[arrival.kind] for arrival in arrivals) / max(arrival.arrival_s for arrival in arrivals)


def scale_to_load(arrivals: Sequence[Arrival], work_s: Mapping[str, float], load: float) -> list[Arrival]:
    """The same jobs, closer together or further apart, so that `load_of` them is as given."""
    factor = load_of(arrivals, work_s) / load
    return [replace(arrival, arrival_s=arrival.arrival_s * factor) for arrival in arrivals]


def read_arrivals(path: Path) -> list[Arrival]:
    """Arrivals of an earlier run's workload, the earliest first. Raises `ValueError`."""
    arrivals = [Arrival(job.arrival_s, job.kind) for job in read_workload(path)]
    unknown = {arrival.kind for arrival in arrivals} - set(KINDS)
    if unknown or len({arrival.kind for arrival in arrivals}) < len(KINDS):
        raise ValueError(f"{path}: the kinds must be {' and '.join(KINDS)}, both")
    if not max(arrival.arrival_s for arrival in arrivals):
        raise ValueError(f"{path}: all jobs arrive at once")
    return sorted(arrivals, key=lambda arrival: arrival.arrival_s)


def as_workload(arrivals: Sequence[Arrival], seconds: Mapping[str, StageSeconds]) -> list[SimulatedJob]:
    """The jobs as the simulator takes them."""
    return [
        SimulatedJob(job_id(number), arrival.arrival_s, arrival.kind, seconds[arrival.kind], arrival.kind)
        for number, arrival in enumerate(arrivals)
    ]


def write_workload(path: Path, jobs: Sequence[SimulatedJob]) -> None:
    """A line a job, as `--workload` and `read_arrivals` take it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(_row(job))}\n" for job in jobs))


def _row(job: SimulatedJob) -> dict[str, object]:
    return {
        "arrival_s": job.arrival_s,
        "kind": job.kind,
        "service_s": job.seconds.denoise_s,
        "encode_s": job.seconds.encode_s,
        "decode_s": job.seconds.decode_s,
    }
