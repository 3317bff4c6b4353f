"""A job's state as its log tells it: the one table of what each event changes."""

from collections.abc import Callable, Collection

from triptych.endings import TERMINAL_EVENTS
from triptych.v1.job_pb2 import Job, JobEvent, JobState, Stage


def apply(job: Job, event: JobEvent) -> None:
    """Change the job as the event says."""
    job.last_sequence = event.sequence
    kind = event.WhichOneof("event")
    if kind is not None:
        _CHANGES[kind](job, event)
    if kind in TERMINAL_EVENTS or kind == "requeued":
        job.paused = False
    if kind in TERMINAL_EVENTS:
        job.stage = Stage.STAGE_UNSPECIFIED
        job.end_time.CopyFrom(event.time)


def end_of(job: Job) -> JobEvent:
    """The event that ended a job that is over, made again of what it left: the job may outlive its log."""
    event = JobEvent(job_id=job.job_id, sequence=job.last_sequence, attempt=job.attempt, time=job.end_time)
    match job.state:
        case JobState.JOB_STATE_SUCCEEDED:
            event.succeeded.SetInParent()
        case JobState.JOB_STATE_CANCELLED:
            event.cancelled.reason = job.cancel_reason
            event.cancelled.SetInParent()
        case _:
            event.failed.error.CopyFrom(job.error)
    return event


def _queued(job: Job, event: JobEvent) -> None:
    job.state = JobState.JOB_STATE_QUEUED
    job.estimate.CopyFrom(event.queued.estimate)
    job.pool = event.queued.pool
    job.rank = event.queued.rank


def _encoded(job: Job, event: JobEvent) -> None:
    job.conditioning_cached = event.encoded.cached
    del job.cut_texts[:]
    job.cut_texts.extend(event.encoded.cut_texts)
    if job.stage == Stage.STAGE_ENCODE:
        job.stage = Stage.STAGE_UNSPECIFIED


def _stage_started(job: Job, event: JobEvent) -> None:
    job.stage = event.stage_started.stage
    if job.stage == Stage.STAGE_ENCODE:
        return
    if job.stage == Stage.STAGE_DENOISE:
        job.attempt = max(job.attempt, event.attempt)
    job.state = JobState.JOB_STATE_RUNNING
    if not job.HasField("start_time"):
        job.start_time.CopyFrom(event.time)


def _progress(job: Job, event: JobEvent) -> None:
    job.progress.CopyFrom(event.progress)


def _output(job: Job, event: JobEvent) -> None:
    if all(output.index != event.output.index for output in job.outputs):
        job.outputs.append(event.output)
        job.outputs.sort(key=lambda output: output.index)


def _withdraw(job: Job, indices: Collection[int]) -> None:
    kept = [output for output in job.outputs if output.index not in indices]
    del job.outputs[:]
    job.outputs.extend(kept)


def _restart_only(job: Job, event: JobEvent) -> None:
    job.restart_only_reason = event.restart_only.reason


def _amended(job: Job, event: JobEvent) -> None:
    job.spec.step_count = event.amended.step_count
    job.estimate.CopyFrom(event.amended.estimate)
    job.rank = event.amended.rank


def _paused(job: Job, event: JobEvent) -> None:
    job.paused = True


def _resumed(job: Job, event: JobEvent) -> None:
    job.paused = False


def _requeued(job: Job, event: JobEvent) -> None:
    _withdraw(job, event.requeued.withdrawn_outputs)
    if event.requeued.stage == Stage.STAGE_DECODE:
        return  # its latents are there, and other outputs may be at work
    job.state = JobState.JOB_STATE_QUEUED
    job.stage = Stage.STAGE_UNSPECIFIED
    job.ClearField("progress")


def _succeeded(job: Job, _: JobEvent) -> None:
    job.state = JobState.JOB_STATE_SUCCEEDED


def _failed(job: Job, event: JobEvent) -> None:
    job.state = JobState.JOB_STATE_FAILED
    job.error.CopyFrom(event.failed.error)


def _cancelled(job: Job, event: JobEvent) -> None:
    job.state = JobState.JOB_STATE_CANCELLED
    job.cancel_reason = event.cancelled.reason


_CHANGES: dict[str, Callable[[Job, JobEvent], None]] = {
    "queued": _queued,
    "encoded": _encoded,
    "stage_started": _stage_started,
    "progress": _progress,
    "output": _output,
    "requeued": _requeued,
    "succeeded": _succeeded,
    "failed": _failed,
    "cancelled": _cancelled,
    "restart_only": _restart_only,
    "amended": _amended,
    "paused": _paused,
    "resumed": _resumed,
}
