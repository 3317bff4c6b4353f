"""What workers are called, and the NATS subjects on which they say that they are there."""

import re

from triptych.v1.worker_pb2 import WorkerHeartbeat

# What to do about two workers with one id.
REMEDY = "Give each worker a worker_id of its own, or none: one is then made for it."
Incarnation = tuple[int, int, str]
_WORKER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_worker_id(text: str) -> bool:
    """Whether a worker can be called so: it becomes a token of its subject."""
    return _WORKER_ID.fullmatch(text) is not None


def heartbeat_subject(stage: str, worker_id: str) -> str:
    """Where a worker of a stage ("encode", "denoise", "decode") is heard; "*" stands for any."""
    return f"triptych.v1.heartbeat.{stage}.{worker_id}"


def incarnation(beat: WorkerHeartbeat) -> Incarnation:
    """What tells one process under a worker's id from another: when it was started, and where it is reached."""
    return beat.start_time.seconds, beat.start_time.nanos, beat.address
