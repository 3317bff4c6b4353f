"""Workloads: the jobs that a simulation is given."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from services.router.core.job import StageSeconds
from services.router.simulate.trace_estimator import TraceRequest


class WorkloadError(ValueError):
    """A workload that cannot be read; names the file, the line and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job as it will come and what it will truly take.

    `kind` is the class that reports tell apart; `deadline_s` is on the clock of `arrival_s`. `request` is what
    a trace tells of it before it runs.
    """

    job_id: str
    arrival_s: float
    kind: str
    seconds: StageSeconds
    model: str
    tenant: str = "default"
    deadline_s: float | None = None
    request: TraceRequest | None = None

    @property
    def service_s(self) -> float:
        """All that it takes if nobody is in its way."""
        return self.seconds.total_s


_REQUIRED = ("arrival_s", "kind", "service_s")
_OPTIONAL = ("tenant", "deadline_s", "model", "encode_s", "decode_s")


def read_workload(path: Path) -> list[SimulatedJob]:
    """Jobs from JSON lines `{"arrival_s", "kind", "service_s"}`, in the order of the file.

    Optional: `tenant`, `deadline_s`, `model` (default: the kind), and `encode_s` and `decode_s`, in which case
    `service_s` is the denoise. Raises `WorkloadError`.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"cannot read {path}: {error}") from error
    jobs = list(_parse(path, lines))
    if not jobs:
        raise WorkloadError(f"{path} has no jobs")
    return jobs


def scale_to_load(jobs: list[SimulatedJob], load: float, workers: int) -> list[SimulatedJob]:
    """The same jobs, closer together or further apart, so that they are `load` of what `workers` can do on average."""
    if not 0.0 < load < inf:
        raise ValueError(f"a load of {load} makes no sense; it is a part of what the fleet can do, such as 0.7")
    span_s = max(job.arrival_s for job in jobs)
    if span_s <= 0.0:
        raise WorkloadError("all jobs arrive at once: there is no load to scale")
    factor = sum(job.service_s for job in jobs) / workers / load / span_s
    return [_later(job, factor) for job in jobs]


def _parse(path: Path, lines: Iterable[str]) -> Iterator[SimulatedJob]:
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            yield _job(number, json.loads(line))
        except (ValueError, TypeError, KeyError) as error:
            why = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
            raise WorkloadError(f"{path}, line {number + 1}: {why}") from error


def _job(number: int, row: Mapping[str, Any]) -> SimulatedJob:
    if not isinstance(row, dict):
        raise ValueError("is not an object")
    unknown = row.keys() - {*_REQUIRED, *_OPTIONAL}
    if unknown:
        raise ValueError(f"unknown {', '.join(sorted(unknown))}; known: {', '.join((*_REQUIRED, *_OPTIONAL))}")
    arrival_s, kind, deadline_s = float(row["arrival_s"]), str(row["kind"]), row.get("deadline_s")
    if not 0.0 <= arrival_s < inf:
        raise ValueError(f"arrival_s is {arrival_s}, which is no time from 0 up")
    seconds = StageSeconds(float(row.get("encode_s", 0.0)), float(row["service_s"]), float(row.get("decode_s", 0.0)))
    return SimulatedJob(
        job_id=job_id(number),
        arrival_s=arrival_s,
        kind=kind,
        seconds=seconds,
        model=str(row.get("model", kind)),
        tenant=str(row.get("tenant", "default")),
        deadline_s=None if deadline_s is None else float(deadline_s),
    )


def job_id(number: int) -> str:
    """Ids that sort as the jobs come, since equal ranks go by id."""
    return f"job{number:07}"


def _later(job: SimulatedJob, factor: float) -> SimulatedJob:
    """The job at so many times its time, its deadline as far from it as before."""
    arrival_s = job.arrival_s * factor
    deadline_s = None if job.deadline_s is None else job.deadline_s - job.arrival_s + arrival_s
    return replace(job, arrival_s=arrival_s, deadline_s=deadline_s)
