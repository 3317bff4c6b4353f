"""What a stage's exceptions mean to the caller."""

import re
from collections.abc import Iterator
from typing import Any

from google.protobuf.json_format import MessageToDict

from services.stage.device_thread import TooMuchWaits
from services.stage.short_memory import is_memory_short
from triptych.errors import Reason, TriptychError, Violation, invalid
from triptych.v1.job_pb2 import JobSpec

# What a block's own checks raise.
_BAD_VALUE = (ValueError, OverflowError)
# What a block raises that is given a value of another type, or out of range, than it takes.
_WRONG_VALUE = (TypeError, AttributeError, LookupError)


def stage_failure(error: Exception, doing: str, spec: JobSpec, *, underway: bool = False) -> TriptychError:
    """The catalog's error for what went wrong with a job while `doing` ("denoising", say).

    A ValueError is the blocks' own check of a job's inputs, an OverflowError a number among them that is out of all
    proportion; an out-of-memory names what may help. Most inputs have no declared type: a wrong one in `extra` is told
    by what the block raises, and then each of them is named.

    Unless the work was `underway`: blocks that got through a step have taken the job's inputs, so that the same
    exceptions later are not the client's fault. Another try may pass.
    """
    if isinstance(error, TriptychError):
        return error
    said = _without_texts(str(error), spec)
    if is_memory_short(error):
        return TriptychError(
            Reason.OUT_OF_MEMORY, f"out of memory while {doing}; a smaller size or fewer frames may fit: {said}"
        )
    if isinstance(error, TooMuchWaits):
        return TriptychError(Reason.NO_SLOT, f"too much waits for the device: {said}")
    if underway and isinstance(error, (*_BAD_VALUE, *_WRONG_VALUE)):
        return TriptychError(Reason.INTERNAL, f"{type(error).__name__} while {doing}, well underway: {said}")
    if isinstance(error, _BAD_VALUE):
        return invalid(Violation("spec", f"the model refuses it while {doing}: {said}"))
    if isinstance(error, _WRONG_VALUE) and spec.extra.fields:
        why = f"the model fails with it while {doing}: {said}"
        return invalid(*(Violation(f"spec.extra.{name}", why) for name in spec.extra.fields))
    return TriptychError(Reason.STAGE_FAILED, f"{type(error).__name__} while {doing}: {said}")


def _without_texts(said: str, spec: JobSpec) -> str:
    """What an error says, without the job's own texts: routers log it. The client knows them."""
    texts = {spec.prompt, spec.negative_prompt, *_texts_in(MessageToDict(spec.extra))}
    quoted = {*texts, *(repr(text)[1:-1] for text in texts)} - {""}
    if not quoted:
        return said
    longest_first = "|".join(re.escape(text) for text in sorted(quoted, key=len, reverse=True))
    return re.sub(rf"(?<!\w)(?:{longest_first})(?!\w)", "…", said)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(each)
