"""Images that a job brings along: which input of a pipeline takes which, and reading them."""

from PIL import Image

from triptych.images import read_image
from triptych.v1.job_pb2 import (
    ATTACHMENT_ROLE_CONTROL_IMAGE,
    ATTACHMENT_ROLE_IMAGE,
    ATTACHMENT_ROLE_LAST_IMAGE,
    ATTACHMENT_ROLE_MASK,
    Attachment,
    AttachmentRole,
)

ATTACHMENT_INPUTS: dict["AttachmentRole.ValueType", str] = {
    ATTACHMENT_ROLE_IMAGE: "image",
    ATTACHMENT_ROLE_MASK: "mask_image",
    ATTACHMENT_ROLE_CONTROL_IMAGE: "control_image",
    ATTACHMENT_ROLE_LAST_IMAGE: "last_image",
}


def read_attachment(attachment: Attachment) -> Image.Image:
    """The image that a viewer shows, a mask as "L". Raises `triptych.images.UnusableImage`."""
    return read_image(attachment.data, is_mask=attachment.role == ATTACHMENT_ROLE_MASK)
