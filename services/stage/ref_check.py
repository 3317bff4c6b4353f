"""What a worker checks of the references in a request, before it starts on anything."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from google.protobuf.message import Message

from triptych.errors import Violation, invalid
from triptych.exchange import BundleInvalid
from triptych.exchange.store import Store
from triptych.v1.job_pb2 import Checkpoint, Conditioning, Latents
from triptych.v1.tensor_pb2 import DataRef

_Holder: TypeAlias = Conditioning | Latents | Checkpoint


def check_refs(**fields: Sequence[_Holder] | _Holder) -> None:
    """What these fields of a request refer to must be a bundle of a store, whether or not it is there still.

    Raises `TriptychError` (INVALID_FIELD) naming every field at fault.
    """
    violations = [Violation(f"{path}.data", why) for path, ref in _refs(fields) if (why := _fault(ref))]
    if violations:
        raise invalid(*violations)


def _refs(fields: dict[str, Sequence[_Holder] | _Holder]) -> Iterator[tuple[str, DataRef]]:
    for name, value in fields.items():
        if isinstance(value, Message):
            yield name, value.data
        else:
            yield from ((f"{name}[{index}]", each.data) for index, each in enumerate(value))


def _fault(ref: DataRef) -> str:
    try:
        Store.of(ref)
    except BundleInvalid as error:
        return error.message
    return ""
