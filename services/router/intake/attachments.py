"""Pictures that a job brings along: checked by their headers before anything decodes them."""

import io
import warnings

from PIL import Image, UnidentifiedImageError

from triptych.errors import Violation
from triptych.limits import MAX_ATTACHMENT_BYTES
from triptych.v1.job_pb2 import Attachment, AttachmentRole, JobSpec
from triptych.v1.worker_pb2 import ModelProfile

MAX_ATTACHMENT_PIXELS = 64_000_000
# Longer ones cannot be resized in reasonable memory.
MAX_ATTACHMENT_SIDE = 16_384
# Which declared input of a pipeline takes which picture.
ATTACHMENT_INPUTS = {
    AttachmentRole.ATTACHMENT_ROLE_IMAGE: "image",
    AttachmentRole.ATTACHMENT_ROLE_MASK: "mask_image",
    AttachmentRole.ATTACHMENT_ROLE_CONTROL_IMAGE: "control_image",
    AttachmentRole.ATTACHMENT_ROLE_LAST_IMAGE: "last_image",
}
_FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP"}


def check_attachments(spec: JobSpec, profile: ModelProfile) -> list[Violation]:
    """What is wrong with the attachments, each named by its place."""
    if len(spec.attachments) > len(ATTACHMENT_INPUTS):
        return [Violation("spec.attachments", f"at most one of each role, {len(ATTACHMENT_INPUTS)} in all")]
    size = sum(len(attachment.data) for attachment in spec.attachments)
    if size > MAX_ATTACHMENT_BYTES:
        return [Violation("spec.attachments", f"have {size} bytes; at most {MAX_ATTACHMENT_BYTES} in all are allowed")]
    declared = {given.name for given in profile.inputs}
    found: list[Violation] = []
    seen: set[int] = set()
    for index, attachment in enumerate(spec.attachments):
        place = f"spec.attachments[{index}]"
        found += _check_role(place, attachment, declared, seen) or _check_picture(place, attachment)
        seen.add(attachment.role)
    if AttachmentRole.ATTACHMENT_ROLE_MASK in seen and AttachmentRole.ATTACHMENT_ROLE_IMAGE not in seen:
        found.append(Violation("spec.attachments", "a mask needs an image"))
    return found


def _check_role(place: str, attachment: Attachment, declared: set[str], seen: set[int]) -> list[Violation]:
    name = ATTACHMENT_INPUTS.get(attachment.role)
    if name is None:
        return [Violation(f"{place}.role", "must be named")]
    if name not in declared:
        return [Violation(f"{place}.role", f"this model takes no {name}")]
    if attachment.role in seen:
        return [Violation(f"{place}.role", "there is one of this role already")]
    return []


def _check_picture(place: str, attachment: Attachment) -> list[Violation]:
    kind = _FORMATS.get(attachment.media_type)
    if kind is None:
        return [Violation(f"{place}.media_type", f"must be one of {', '.join(_FORMATS)}")]
    try:
        with warnings.catch_warnings():
            # Pillow warns of what the limit below refuses.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(attachment.data), formats=[kind]) as picture:
                width, height = picture.size
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError):
        return [Violation(f"{place}.data", f"is not a readable {kind} file")]
    if max(width, height) > MAX_ATTACHMENT_SIDE:
        return [Violation(f"{place}.data", f"has {width} × {height} pixels; at most {MAX_ATTACHMENT_SIDE} a side")]
    if not 0 < width * height <= MAX_ATTACHMENT_PIXELS:
        return [Violation(f"{place}.data", f"has {width} × {height} pixels; at most {MAX_ATTACHMENT_PIXELS} allowed")]
    return []
