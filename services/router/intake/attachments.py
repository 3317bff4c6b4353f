"""Images that a job brings along: each is decoded here, so that what the stages could not use is refused at once."""

from dataclasses import dataclass, field

from triptych.attachments import ATTACHMENT_INPUTS
from triptych.errors import Violation
from triptych.file_kinds import MEDIA_TYPES, file_kind
from triptych.images import Size, UnusableImage, image_size, is_shape_of
from triptych.limits import MAX_ATTACHMENT_BYTES
from triptych.v1.job_pb2 import (
    ATTACHMENT_ROLE_CONTROL_IMAGE,
    ATTACHMENT_ROLE_IMAGE,
    ATTACHMENT_ROLE_MASK,
    Attachment,
    AttachmentRole,
    JobSpec,
)
from triptych.v1.worker_pb2 import ModelProfile


@dataclass
class Attachments:
    """What was found: the size of each image by its role, upright, and what is wrong."""

    sizes: dict["AttachmentRole.ValueType", Size] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)

    @property
    def canvas(self) -> Size | None:
        """The size of the image that gives an output its shape: the start image, else the control image."""
        return self.sizes.get(ATTACHMENT_ROLE_IMAGE) or self.sizes.get(ATTACHMENT_ROLE_CONTROL_IMAGE)


def read_attachments(spec: JobSpec, profile: ModelProfile) -> Attachments:
    """Read the attachments and set their media types to what they are. Each fault is named by its place.

    Blocks for as long as it takes to decode them.
    """
    found = Attachments()
    if len(spec.attachments) > len(ATTACHMENT_INPUTS):
        why = f"at most one of each role, {len(ATTACHMENT_INPUTS)} in all"
        found.violations.append(Violation("spec.attachments", why))
        return found
    size = sum(len(attachment.data) for attachment in spec.attachments)
    if size > MAX_ATTACHMENT_BYTES:
        why = f"have {size} bytes; at most {MAX_ATTACHMENT_BYTES} in all are allowed"
        found.violations.append(Violation("spec.attachments", why))
        return found
    declared = {given.name for given in profile.inputs}
    seen: set[int] = set()
    for index, attachment in enumerate(spec.attachments):
        place = f"spec.attachments[{index}]"
        wrong = _check_role(place, attachment, declared, seen)
        found.violations += wrong or _read(place, attachment, found)
        seen.add(attachment.role)
    found.violations += _check_mask(seen, found)
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


def _read(place: str, attachment: Attachment, found: Attachments) -> list[Violation]:
    try:
        found.sizes[attachment.role] = image_size(attachment.data)
    except UnusableImage as error:
        return [Violation(f"{place}.data", str(error))]
    attachment.media_type = MEDIA_TYPES[file_kind(attachment.data)]
    return []


def _check_mask(seen: set[int], found: Attachments) -> list[Violation]:
    if ATTACHMENT_ROLE_MASK not in seen:
        return []
    if ATTACHMENT_ROLE_IMAGE not in seen:
        return [Violation("spec.attachments", "a mask needs an image")]
    mask, image = found.sizes.get(ATTACHMENT_ROLE_MASK), found.sizes.get(ATTACHMENT_ROLE_IMAGE)
    if mask is None or image is None or is_shape_of(mask, image):
        return []
    why = f"the mask has {mask[0]} × {mask[1]} pixels, its image {image[0]} × {image[1]}: give both the same shape"
    return [Violation("spec.attachments", why)]
