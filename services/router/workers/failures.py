"""What a failed call means: to the scheduler, and for the worker that was called."""

from enum import Enum

import grpc

from services.router.core.events import ResultGone, TaskFailed
from services.router.core.job import Stage, Task
from services.router.store.named import bundles_of
from triptych.errors import Reason, TriptychError
from triptych.exchange import ExchangeConfig
from triptych.v1.job_pb2 import JobRecord


class Blow(Enum):
    """What else follows from a failed call."""

    NONE = "none"
    UNWILLING = "unwilling"  # the worker is there, and takes no work
    UNREACHABLE = "unreachable"  # it may be gone
    DEPOSED = "deposed"  # another router is in charge


# Whose work it is that a worker has missed; of what is damaged by the store that the error names.
_GONE = {Reason.CONDITIONING_GONE: Stage.ENCODE, Reason.LATENTS_GONE: Stage.DENOISE}
_DAMAGED = {"conditioning": Stage.ENCODE, "latents": Stage.DENOISE}
# What `ExchangeConfig` has a size of.
_STORES = frozenset({"conditioning", "latents", "outputs"})
# It drains; or was started anew, and cannot serve the model any longer; or it does not know this router: the two were
# given different tokens or certificates, which its operator sees in the router's log, and which may be mended any
# moment.
_UNWILLING = frozenset(
    {
        Reason.DRAINING,
        Reason.NOT_READY,
        Reason.MODEL_UNAVAILABLE,
        Reason.UNAUTHENTICATED,
        Reason.PERMISSION_DENIED,
    }
)
_UNREACHABLE = frozenset({Reason.UNREACHABLE, Reason.CANCELLED})
# Another try may pass, and this one was not the job's fault.
_NO_FAULT = frozenset({Reason.NO_SLOT, Reason.EXCHANGE_UNAVAILABLE})
# Another try, on another worker say, may pass; not for ever.
_WORTH_A_TRY = frozenset({Reason.OUT_OF_MEMORY, Reason.INTERNAL})


def judge(task: Task, begun: bool, code: grpc.StatusCode, error: TriptychError) -> tuple[TaskFailed | ResultGone, Blow]:
    """The scheduler's event, and the blow. `begun`: the worker had reported work on it."""
    reason = error.reason

    def failed(*, retryable: bool, counts: bool) -> TaskFailed:
        return TaskFailed(task, reason.name, error.message, retryable, counts)

    if reason is Reason.STALE_EPOCH:
        return failed(retryable=True, counts=False), Blow.DEPOSED
    made_by = _missed(error)
    if made_by is Stage.DENOISE and task.stage is Stage.DENOISE:
        # Another job's, that this one was to go on from: it begins at the beginning.
        return failed(retryable=True, counts=False), Blow.NONE
    if reason is Reason.CONDITIONING_GONE and task.stage is Stage.ENCODE:
        # What an earlier block had made left the exchange before the next one had read it: all is made again.
        return failed(retryable=True, counts=False), Blow.NONE
    if made_by is not None and task.stage is not Stage.ENCODE:
        return ResultGone(task, made_by), Blow.NONE
    if reason in _UNWILLING:
        return failed(retryable=True, counts=False), Blow.UNWILLING
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return failed(retryable=True, counts=True), Blow.NONE
    if reason in _UNREACHABLE:
        return failed(retryable=True, counts=begun), Blow.UNREACHABLE
    if reason is Reason.STORE_FULL:
        return TaskFailed(task, reason.name, error.message, retryable=True, counts=False, awaits_room=True), Blow.NONE
    if reason in _NO_FAULT:
        return failed(retryable=True, counts=False), Blow.NONE
    # A decode that fails has hours of sampling behind it.
    worth = reason in _WORTH_A_TRY or (reason is Reason.STAGE_FAILED and task.stage is Stage.DECODE)
    return failed(retryable=worth, counts=True), Blow.NONE


def beyond_store(task: Task, record: JobRecord, error: TriptychError, config: ExchangeConfig) -> TriptychError | None:
    """What to say of a job that found its store full, and would find an empty one too small; None of any other.

    What a job has in a store stays there until it is over: nobody else can make room for the rest.
    """
    store, size = error.metadata.get("store", ""), error.metadata.get("byte_size", "")
    if store not in _STORES or not size.isdecimal():
        return None
    needed = int(size) + (0 if task.stage is Stage.ENCODE else _kept_bytes(record, store))
    room = config.room_bytes(store)
    if needed <= room:
        return None
    why = f"The job needs {needed} bytes of the store of {store}, which holds {room}: raise {store}_max_bytes."
    return TriptychError(Reason.STORE_FULL, why, metadata=error.metadata)


def _kept_bytes(record: JobRecord, store: str) -> int:
    """What the job has there. The checkpoint of an output whose latents are there is gone, or about to go."""
    done = {latents.output_index for latents in record.latents}
    gone = record.checkpoint.data.bundle_id if record.checkpoint.output_index in done else ""
    return sum(ref.byte_size for ref in bundles_of(record) if ref.store == store and ref.bundle_id != gone)


def _missed(error: TriptychError) -> Stage | None:
    if error.reason is Reason.BUNDLE_CORRUPT:
        return _DAMAGED.get(error.metadata.get("store", ""))
    return _GONE.get(error.reason)
