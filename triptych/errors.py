"""The one catalog of errors: what can go wrong, its gRPC code, and its way over the wire and back.

Every error on the wire is a `google.rpc.Status` with exactly one `ErrorInfo` (reason, domain "triptych", metadata),
beside it `BadRequest` for bad input and `RetryInfo` when a later try may pass. Details are found by type, not position.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from triptych.durations import duration_of, seconds_of

DOMAIN = "triptych"
_Detail = TypeVar("_Detail", bound=Message)


class Reason(Enum):
    """Why a call or a job failed; the value is its canonical gRPC code."""

    UNAUTHENTICATED = ("UNAUTHENTICATED", code_pb2.UNAUTHENTICATED)
    PERMISSION_DENIED = ("PERMISSION_DENIED", code_pb2.PERMISSION_DENIED)
    INVALID_FIELD = ("INVALID_FIELD", code_pb2.INVALID_ARGUMENT)
    MODEL_UNKNOWN = ("MODEL_UNKNOWN", code_pb2.INVALID_ARGUMENT)
    MODEL_UNAVAILABLE = ("MODEL_UNAVAILABLE", code_pb2.FAILED_PRECONDITION)
    JOB_UNKNOWN = ("JOB_UNKNOWN", code_pb2.NOT_FOUND)
    OUTPUT_UNKNOWN = ("OUTPUT_UNKNOWN", code_pb2.NOT_FOUND)
    OUTPUT_GONE = ("OUTPUT_GONE", code_pb2.NOT_FOUND)
    REQUEST_ID_REUSED = ("REQUEST_ID_REUSED", code_pb2.ALREADY_EXISTS)
    OVERLOADED = ("OVERLOADED", code_pb2.RESOURCE_EXHAUSTED)
    QUOTA_EXCEEDED = ("QUOTA_EXCEEDED", code_pb2.RESOURCE_EXHAUSTED)
    QUEUE_FULL = ("QUEUE_FULL", code_pb2.RESOURCE_EXHAUSTED)
    STORE_FULL = ("STORE_FULL", code_pb2.RESOURCE_EXHAUSTED)
    DISK_FULL = ("DISK_FULL", code_pb2.RESOURCE_EXHAUSTED)
    NO_SLOT = ("NO_SLOT", code_pb2.RESOURCE_EXHAUSTED)
    OUT_OF_MEMORY = ("OUT_OF_MEMORY", code_pb2.RESOURCE_EXHAUSTED)
    TOO_MANY_STREAMS = ("TOO_MANY_STREAMS", code_pb2.RESOURCE_EXHAUSTED)
    TOO_LONG = ("TOO_LONG", code_pb2.FAILED_PRECONDITION)
    DEADLINE_UNREACHABLE = ("DEADLINE_UNREACHABLE", code_pb2.FAILED_PRECONDITION)
    OUTPUT_NOT_READY = ("OUTPUT_NOT_READY", code_pb2.FAILED_PRECONDITION)
    CONDITIONING_GONE = ("CONDITIONING_GONE", code_pb2.FAILED_PRECONDITION)
    LATENTS_GONE = ("LATENTS_GONE", code_pb2.FAILED_PRECONDITION)
    INPUT_GONE = ("INPUT_GONE", code_pb2.FAILED_PRECONDITION)
    JOB_ENDED = ("JOB_ENDED", code_pb2.FAILED_PRECONDITION)
    STALE_EPOCH = ("STALE_EPOCH", code_pb2.FAILED_PRECONDITION)
    BUNDLE_CORRUPT = ("BUNDLE_CORRUPT", code_pb2.DATA_LOSS)
    NO_WORKER = ("NO_WORKER", code_pb2.UNAVAILABLE)
    WORKER_LOST = ("WORKER_LOST", code_pb2.UNAVAILABLE)
    DRAINING = ("DRAINING", code_pb2.UNAVAILABLE)
    NOT_READY = ("NOT_READY", code_pb2.UNAVAILABLE)
    EXCHANGE_UNAVAILABLE = ("EXCHANGE_UNAVAILABLE", code_pb2.UNAVAILABLE)
    UNREACHABLE = ("UNREACHABLE", code_pb2.UNAVAILABLE)
    CANCELLED = ("CANCELLED", code_pb2.CANCELLED)
    STAGE_FAILED = ("STAGE_FAILED", code_pb2.INTERNAL)
    TOO_MANY_ATTEMPTS = ("TOO_MANY_ATTEMPTS", code_pb2.INTERNAL)
    INTERNAL = ("INTERNAL", code_pb2.INTERNAL)

    @property
    def code(self) -> int:
        """The canonical code, a `google.rpc.Code` value."""
        return int(self.value[1])


# An error travels in the metadata at the end of a call, its message twice: 16 KiB in all (`triptych.rpc.channel`). In
# bytes.
MAX_MESSAGE = 1000
MAX_FIELD = 100
MAX_DESCRIPTION = 200
MAX_VIOLATIONS = 16


@dataclass(frozen=True, slots=True)
class Violation:
    """One field that cannot be used: its path in the request ("spec.width") and what to do about it."""

    field: str
    description: str


class TriptychError(Exception):
    """An error with a reason from the catalog, words for a person, and figures for a program.

    `retry_after_s` is set when the same call may pass later. `metadata` values are strings.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[Violation] = (),
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        self.violations = tuple(violations)
        self.retry_after_s = retry_after_s


def invalid(*violations: Violation) -> TriptychError:
    """Bad input: the fields at fault, named in the message too."""
    message = "; ".join(f"{v.field}: {v.description}" for v in violations)
    return TriptychError(Reason.INVALID_FIELD, message, violations=violations)


def to_status(error: TriptychError) -> status_pb2.Status:
    """The error as it travels and as it is stored with a failed job, cut to what the end of a call can carry."""
    status = status_pb2.Status(code=error.reason.code, message=_cut(error.message, MAX_MESSAGE))
    metadata = {key: _cut(value, MAX_DESCRIPTION) for key, value in error.metadata.items()}
    info = error_details_pb2.ErrorInfo(reason=error.reason.name, domain=DOMAIN, metadata=metadata)
    status.details.add().Pack(info)
    if error.violations:
        bad = error_details_pb2.BadRequest()
        for violation in error.violations[:MAX_VIOLATIONS]:
            description = _cut(violation.description, MAX_DESCRIPTION)
            bad.field_violations.add(field=_cut(violation.field, MAX_FIELD), description=description)
        status.details.add().Pack(bad)
    if error.retry_after_s is not None:
        retry = error_details_pb2.RetryInfo(retry_delay=duration_of(error.retry_after_s))
        status.details.add().Pack(retry)
    return status


def _cut(text: str, most: int) -> str:
    """So many bytes of it at most; what is no UTF-8, as in the names of some files, could not be sent."""
    data = text.encode(errors="replace")
    return data.decode() if len(data) <= most else f"{data[:most].decode(errors='ignore')}…"


def from_status(status: status_pb2.Status) -> TriptychError:
    """The error that a status carries. A status that is not ours becomes INTERNAL with its message."""
    info = _detail(status, error_details_pb2.ErrorInfo)
    bad = _detail(status, error_details_pb2.BadRequest)
    retry = _detail(status, error_details_pb2.RetryInfo)
    known = info is not None and info.domain == DOMAIN and info.reason in Reason.__members__
    return TriptychError(
        Reason[info.reason] if info is not None and known else Reason.INTERNAL,
        status.message,
        metadata=dict(info.metadata) if info is not None else None,
        violations=[Violation(v.field, v.description) for v in bad.field_violations] if bad is not None else (),
        retry_after_s=seconds_of(retry.retry_delay) if retry is not None else None,
    )


def from_rpc_error(error: grpc.aio.AioRpcError) -> TriptychError:
    """The error behind a failed call: the server's own, or what the transport says of it."""
    status = rpc_status.from_call(cast(Any, error))
    if status is not None:
        return from_status(status)
    message = error.details() or error.code().name
    if error.code() is grpc.StatusCode.CANCELLED:
        return TriptychError(Reason.CANCELLED, message)
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return TriptychError(Reason.UNREACHABLE, message)
    return TriptychError(Reason.INTERNAL, f"{error.code().name}: {message}")


def _detail(status: status_pb2.Status, kind: type[_Detail]) -> _Detail | None:
    for packed in status.details:
        found = kind()
        if packed.Unpack(found):
            return found
    return None
