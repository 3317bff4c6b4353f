"""Pictures and videos on their way in and out."""

from dataclasses import dataclass
from pathlib import Path

from triptych.errors import Violation, invalid
from triptych.file_kinds import MEDIA_TYPES, file_kind, wrong_kind
from triptych.limits import MAX_ATTACHMENT_BYTES
from triptych.v1 import job_pb2

_SUFFIXES = {
    "image/png": ".png",
    "image/apng": ".png",
    "image/jpeg": ".jpg",
    "image/webp": ".webp",
    "video/mp4": ".mp4",
}


@dataclass(frozen=True, slots=True)
class Media:
    """A finished picture or video: what is known of it, and the encoded file."""

    output: job_pb2.Output
    data: bytes

    @property
    def suffix(self) -> str:
        """The usual ending of a file of this type, with its dot."""
        return _SUFFIXES.get(self.output.media_type, ".bin")

    def save(self, path: Path | str) -> Path:
        """Write the file in one step, making its folder if need be. Raises `OSError`."""
        return replace_file(Path(path), self.data)


def replace_file(path: Path, data: bytes) -> Path:
    """Write a file in one step, making its folder if need be. Raises `OSError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.part")
    draft.write_bytes(data)
    return draft.replace(path)


def attachment(
    path: Path | str, role: job_pb2.AttachmentRole.ValueType = job_pb2.ATTACHMENT_ROLE_IMAGE
) -> job_pb2.Attachment:
    """A PNG, JPEG or WebP file, whatever its name, to go with a job. Raises `TriptychError` (INVALID_FIELD)."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_ATTACHMENT_BYTES + 1)
    except OSError as error:
        raise invalid(Violation("spec.attachments", f"{path}: {error.strerror or error}")) from error
    if why := wrong_kind(data):
        raise invalid(Violation("spec.attachments", f"{path}: {why}"))
    if len(data) > MAX_ATTACHMENT_BYTES:
        raise invalid(Violation("spec.attachments", f"{path}: larger than {MAX_ATTACHMENT_BYTES >> 20} MiB"))
    return job_pb2.Attachment(role=role, media_type=MEDIA_TYPES[file_kind(data)], data=data)
