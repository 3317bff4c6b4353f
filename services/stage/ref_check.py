"""What a worker checks of the references in a request, before it starts on anything."""

from collections.abc import Iterable

from triptych.errors import Violation, invalid
from triptych.exchange import BundleInvalid
from triptych.exchange.store import Store
from triptych.v1.job_pb2 import Conditioning
from triptych.v1.tensor_pb2 import DataRef


def check_refs(conditioning: Iterable[Conditioning], **others: DataRef) -> None:
    """Each must name a store and a bundle, whether or not the bundle is there; `others` by their field in the request.

    Raises `TriptychError` (INVALID_FIELD) naming every field at fault.
    """
    named = [(f"conditioning[{index}].data", entry.data) for index, entry in enumerate(conditioning)]
    named += [(f"{field}.data", ref) for field, ref in others.items()]
    violations = [Violation(field, why) for field, ref in named if (why := _fault(ref))]
    if violations:
        raise invalid(*violations)


def _fault(ref: DataRef) -> str:
    try:
        Store.of(ref)
    except BundleInvalid as error:
        return error.message
    return ""
