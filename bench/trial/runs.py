"""Who had a job and when, read from its log. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from triptych.endings import is_terminal
from triptych.v1.job_pb2 import STAGE_DENOISE, STAGE_UNSPECIFIED, JobEvent


@dataclass(frozen=True, slots=True)
class Run:
    """A denoiser had the job, from its start to its loss or the job's end. Seconds since the epoch."""

    worker: str
    began_s: float
    ended_s: float


def time_of(event: JobEvent) -> float:
    """When the router wrote the event, in seconds since the epoch."""
    return event.time.ToMilliseconds() / 1000


def denoiser_runs(log: Sequence[JobEvent]) -> list[Run]:
    """The runs of an ended job's denoise, in order."""
    runs: list[Run] = []
    held: tuple[str, float] | None = None
    for event in log:
        starts = event.stage_started.stage == STAGE_DENOISE
        lost = event.HasField("requeued") and event.requeued.stage in (STAGE_DENOISE, STAGE_UNSPECIFIED)
        if held is not None and (starts or lost or is_terminal(event)):
            runs.append(Run(*held, time_of(event)))
            held = None
        if starts:
            held = event.stage_started.worker_id, time_of(event)
    return runs
