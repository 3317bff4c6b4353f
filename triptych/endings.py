"""How a job ends: for the router that writes its log, and for all who read it."""

from triptych.errors import Reason, TriptychError, from_status
from triptych.v1 import job_pb2

TERMINAL_STATES = frozenset({job_pb2.JOB_STATE_SUCCEEDED, job_pb2.JOB_STATE_FAILED, job_pb2.JOB_STATE_CANCELLED})
TERMINAL_EVENTS = frozenset({"succeeded", "failed", "cancelled"})
# Why a job was cancelled that nobody asked to cancel.
CLIENT_GONE = "CLIENT_GONE"


def is_over(job: job_pb2.Job) -> bool:
    """Whether the job has ended; nothing follows in its log."""
    return job.state in TERMINAL_STATES


def is_abandoned(job: job_pb2.Job) -> bool:
    """Whether the job was cancelled because its client was gone: its request id is free again."""
    return job.state == job_pb2.JOB_STATE_CANCELLED and job.cancel_reason == CLIENT_GONE


def is_terminal(event: job_pb2.JobEvent) -> bool:
    """Whether this event ends its job."""
    return event.WhichOneof("event") in TERMINAL_EVENTS


def raise_if_failed(event: job_pb2.JobEvent) -> None:
    """Raises the error behind a failed or cancelled job; other events pass."""
    kind = event.WhichOneof("event")
    if kind == "failed":
        raise from_status(event.failed.error)
    if kind == "cancelled":
        raise TriptychError(Reason.CANCELLED, f"Job {event.job_id} was cancelled.")
