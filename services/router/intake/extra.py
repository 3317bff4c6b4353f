"""Inputs beyond the spec's own fields: only those that the model's blocks declare, as plain bounded values."""

import re
from collections.abc import Iterator
from math import isfinite

from google.protobuf.struct_pb2 import Value

from triptych.attachments import ATTACHMENT_INPUTS
from triptych.errors import Violation
from triptych.v1.job_pb2 import AttachmentRole, JobSpec
from triptych.v1.worker_pb2 import ModelProfile

MAX_EXTRA_BYTES = 16 * 1024
MAX_EXTRA_DEPTH = 4
_MAX_NAMED = 16
# Inputs that a field of the spec stands for, or that the stages make themselves.
RESERVED_INPUTS = frozenset(
    {
        "prompt",
        "negative_prompt",
        "height",
        "width",
        "max_area",
        "num_frames",
        "num_inference_steps",
        "guidance_scale",
        "generator",
        "latents",
        "timesteps",
        "sigmas",
        "output_type",
        "batch_size",
        "dtype",
        "num_images_per_prompt",
        "num_videos_per_prompt",
        "image_latents",
        "joint_attention_kwargs",
        "cross_attention_kwargs",
        *ATTACHMENT_INPUTS.values(),
    }
)
# Inputs of these kinds alone are made by the stages, or are attachments.
_NOT_PLAIN = frozenset({"Tensor", "ndarray", "Image"})
_AROUND = frozenset({"torch", "numpy", "PIL", "list", "List", "tuple", "Tuple"})
# Tokens of text, whatever the model: the work grows with their square, and no price knows of them.
_TEXT_LENGTH = "max_sequence_length"
MAX_TEXT_LENGTH = 1024
_STRENGTH = "strength"
_SCALARS = {"float": "number_value", "int": "number_value", "bool": "bool_value", "str": "string_value"}
_HINT_NOISE = frozenset({"None", "NoneType", "Optional", "Union", "class", "typing"})
_KIND_NAMES = {"number_value": "a number", "bool_value": "true or false", "string_value": "text"}


def check_extra(spec: JobSpec, profile: ModelProfile) -> list[Violation]:
    """What is wrong with `extra`, each key named."""
    size = spec.extra.ByteSize()
    if size > MAX_EXTRA_BYTES:
        return [Violation("spec.extra", f"has {size} bytes; at most {MAX_EXTRA_BYTES} are allowed")]
    hints = {given.name: given.type_hint for given in profile.inputs}
    found = []
    for key, value in spec.extra.fields.items():
        why = _refusal(key, value, hints) or _no_step(key, value, spec)
        if why:
            found.append(Violation(f"spec.extra.{key[:64]}", why))
    return found[:_MAX_NAMED]


def _refusal(key: str, value: Value, hints: dict[str, str]) -> str:
    if key in RESERVED_INPUTS:
        return "is set by a field of the job, or by the service itself"
    if key not in hints:
        return "this model takes no such input"
    if _depth(value) > MAX_EXTRA_DEPTH:
        return f"is nested deeper than {MAX_EXTRA_DEPTH} levels"
    if not all(isfinite(number) for number in _numbers(value)):
        return "must have finite numbers only"
    if key == _TEXT_LENGTH and not value.HasField("null_value") and not _is_length(value.number_value):
        return f"must be a whole number from 1 to {MAX_TEXT_LENGTH}"
    return _wrong_kind(value, hints[key])


def _no_step(key: str, value: Value, spec: JobSpec) -> str:
    """From an image the last `strength` part of the steps is run."""
    if key != _STRENGTH or not value.HasField("number_value") or value.number_value > 0:
        return ""
    from_image = any(each.role == AttachmentRole.ATTACHMENT_ROLE_IMAGE for each in spec.attachments)
    return "must be above 0: no step would be left to run" if from_image else ""


def _is_length(number: float) -> bool:
    return number.is_integer() and 1 <= number <= MAX_TEXT_LENGTH


def _wrong_kind(value: Value, hint: str) -> str:
    """Why a value cannot be what the block's hint asks for, as far as the hint is of plain types; "" if it may."""
    words = set(re.findall(r"\w+", hint)) - _HINT_NOISE
    kind = value.WhichOneof("kind")
    if words & _NOT_PLAIN and words <= _NOT_PLAIN | _AROUND:
        return "takes tensors or pictures, which cannot be given here"
    if not words or not words <= _SCALARS.keys() or kind == "null_value":
        return ""
    wanted = {_SCALARS[word] for word in words}
    if kind not in wanted:
        return f"must be {' or '.join(sorted(_KIND_NAMES[each] for each in wanted))}"
    if words == {"int"} and not value.number_value.is_integer():
        return "must be a whole number"
    return ""


def _children(value: Value) -> list[Value]:
    if value.HasField("struct_value"):
        return list(value.struct_value.fields.values())
    return list(value.list_value.values) if value.HasField("list_value") else []


def _depth(value: Value, limit: int = MAX_EXTRA_DEPTH + 1) -> int:
    """Levels of nesting; stops counting at `limit`."""
    if limit <= 1:
        return 1
    return 1 + max((_depth(child, limit - 1) for child in _children(value)), default=0)


def _numbers(value: Value) -> Iterator[float]:
    if value.HasField("number_value"):
        yield value.number_value
    for child in _children(value):
        yield from _numbers(child)
