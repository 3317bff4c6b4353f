"""From a job to the inputs that pipeline blocks declare: the field's names on one side, diffusers' on the other."""

from collections.abc import Container, Iterable
from typing import Any, Literal, TypeAlias

import torch
from google.protobuf.json_format import MessageToDict
from PIL import Image

from triptych.attachments import ATTACHMENT_INPUTS, read_attachment
from triptych.errors import Violation, invalid
from triptych.images import UnusableImage, fit
from triptych.v1.job_pb2 import ATTACHMENT_ROLE_IMAGE, ATTACHMENT_ROLE_MASK, JobSpec

# The state of the noise generator after a block that drew from it: the next one goes on from there.
GENERATOR_STATE = "triptych.generator_state"

_Field: TypeAlias = Literal["prompt", "negative_prompt", "step_count", "height", "width", "guidance", "frame_count"]
# Zero, and an empty text, are values: a field is left to the block only if it is not set.
_FIELD_INPUTS: dict[_Field, str] = {
    "prompt": "prompt",
    "negative_prompt": "negative_prompt",
    "step_count": "num_inference_steps",
    "height": "height",
    "width": "width",
    "guidance": "guidance_scale",
    "frame_count": "num_frames",
}


def job_inputs(spec: JobSpec, declared: Iterable[Any]) -> dict[str, Any]:
    """Inputs for blocks that declare `declared` (diffusers' `InputParam`s); what is not set is left to the block.

    Images have the job's size, so that no block has a reason to make it another. Raises `TriptychError`
    (INVALID_FIELD) for an attachment that is no image or an `extra` of the wrong type.
    """
    params = {param.name: param for param in declared if param.name}
    inputs: dict[str, Any] = {
        name: getattr(spec, field) for field, name in _FIELD_INPUTS.items() if spec.HasField(field)
    }
    inputs["max_area"] = spec.width * spec.height
    inputs |= _images(spec, params.keys())
    for name, value in MessageToDict(spec.extra).items():
        if name in params and value is not None:
            inputs[name] = _typed(name, value, params[name])
    return {name: value for name, value in inputs.items() if name in params}


def guidance(spec: JobSpec) -> float | None:
    """The guidance scale that the job asks for; None leaves the model's own."""
    return spec.guidance if spec.HasField("guidance") else None


def noise(spec: JobSpec, output_index: int | None) -> torch.Generator | None:
    """A fresh generator for one output: it depends on `seed + output_index` alone. None if there is no output.

    It is the CPU's, which draws the same noise for every device.
    """
    return None if output_index is None else torch.Generator().manual_seed(spec.seed + output_index)


def _images(spec: JobSpec, declared: Container[str]) -> dict[str, Image.Image]:
    """The attachments by the inputs that they are for, each fitted to the job's size."""
    images = {
        attachment.role: _image(spec, index)
        for index, attachment in enumerate(spec.attachments)
        if ATTACHMENT_INPUTS[attachment.role] in declared
    }
    if {ATTACHMENT_ROLE_IMAGE, ATTACHMENT_ROLE_MASK} <= images.keys():
        # So that it is cut as its image is.
        images[ATTACHMENT_ROLE_MASK] = images[ATTACHMENT_ROLE_MASK].resize(images[ATTACHMENT_ROLE_IMAGE].size)
    size = (spec.width, spec.height)
    return {ATTACHMENT_INPUTS[role]: fit(image, size) for role, image in images.items()}


def _image(spec: JobSpec, index: int) -> Image.Image:
    try:
        return read_attachment(spec.attachments[index])
    except UnusableImage as error:
        raise invalid(Violation(f"spec.attachments[{index}].data", str(error))) from error


def _typed(name: str, value: Any, param: Any) -> Any:
    """JSON has one kind of number: a whole one is an int, unless the block says that it wants a float."""
    if isinstance(value, list):
        return [_typed(name, item, param) for item in value]
    hint = str(param.type_hint or "")
    if not isinstance(value, float) or "float" in hint or isinstance(param.default, float):
        return value
    if value.is_integer():
        return int(value)
    if "int" in hint:
        raise invalid(Violation(f"spec.extra.{name}", f"must be a whole number, is {value}"))
    return value
