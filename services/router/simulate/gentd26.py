"""Traces with the columns of GenTD26, a public record of requests to a production diffusion service."""

import csv
import gzip
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from math import inf
from pathlib import Path
from typing import TextIO

from services.router.core.job import StageSeconds
from services.router.simulate.workload import SimulatedJob, WorkloadError, job_id

_COLUMNS = ("gmt_create", "predict_type", "predict_status", "exec_time_seconds", "groupId")


def read_trace(path: Path) -> list[SimulatedJob]:
    """The requests of a trace that succeeded, in the order of their arrival, the first at 0 s.

    `path` is a CSV file, or one compressed by gzip. The kind of a job is its `predict_type`, the tenant its `groupId`.
    Raises `WorkloadError`.
    """
    try:
        with _open(path) as lines:
            jobs = sorted(_parse(path, csv.DictReader(lines)), key=lambda job: job.arrival_s)
    except (OSError, UnicodeDecodeError, EOFError, csv.Error) as error:
        raise WorkloadError(f"cannot read {path}: {error}") from error
    if not jobs:
        raise WorkloadError(f"{path} has no request that succeeded")
    first_s = jobs[0].arrival_s
    return [replace(job, job_id=job_id(n), arrival_s=job.arrival_s - first_s) for n, job in enumerate(jobs)]


def scale_to_load(jobs: list[SimulatedJob], load: float, workers: int) -> list[SimulatedJob]:
    """The same jobs, closer together or further apart, so that they are `load` of what `workers` can do on average."""
    span_s = max(job.arrival_s for job in jobs)
    if span_s <= 0.0:
        raise WorkloadError("all jobs arrive at once: there is no load to scale")
    factor = sum(job.service_s for job in jobs) / workers / load / span_s
    return [replace(job, arrival_s=job.arrival_s * factor) for job in jobs]


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", newline="")
    return path.open(newline="")


def _parse(path: Path, rows: "csv.DictReader[str]") -> Iterator[SimulatedJob]:
    missing = [name for name in _COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        raise WorkloadError(f"{path} has no column {', '.join(missing)}")
    for row in rows:
        if row["predict_status"] != "SUCCEED":
            continue
        try:
            yield _job(row)
        except (ValueError, TypeError) as error:
            raise WorkloadError(f"{path}, line {rows.line_num}: {error}") from error


def _job(row: Mapping[str, str]) -> SimulatedJob:
    seconds = float(row["exec_time_seconds"])
    if not 0.0 < seconds < inf:
        raise ValueError(f"exec_time_seconds is {seconds}")
    return SimulatedJob(
        job_id="",
        arrival_s=datetime.fromisoformat(row["gmt_create"]).timestamp(),
        kind=row["predict_type"].lower(),
        seconds=StageSeconds(0.0, seconds, 0.0),
        model=row.get("checkpoint_model_version_id") or "unnamed",
        tenant=row["groupId"],
    )
