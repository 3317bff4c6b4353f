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
from services.router.simulate.trace_estimator import TraceRequest
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


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


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
    model = row.get("checkpoint_model_version_id") or "unnamed"
    request = TraceRequest(
        model=model,
        predict_type=row["predict_type"],
        step_count=_number(row, "num_inference_steps"),
        image_count=_number(row, "num_images_per_prompt"),
        lora_count=_number(row, "num_lora"),
        prompt_length=_number(row, "prompt_length"),
        negative_prompt_length=_number(row, "negative_prompt_length"),
    )
    return SimulatedJob(
        job_id="",
        arrival_s=datetime.fromisoformat(row["gmt_create"]).timestamp(),
        kind=row["predict_type"].lower(),
        seconds=StageSeconds(0.0, seconds, 0.0),
        model=model,
        tenant=row["groupId"],
        request=request,
    )


def _number(row: Mapping[str, str], column: str) -> float:
    """A cell; 0 if it is empty or there is no such column."""
    return float(row.get(column) or 0.0)
