"""What a file of each format can hold: a job whose output it could not is refused before any work is done."""

from dataclasses import dataclass
from typing import Literal

from triptych.errors import Violation
from triptych.limits import MAX_ANIMATED_FPS, MAX_FPS, MAX_SIDE
from triptych.v1.job_pb2 import JobSpec, MediaFormat

# Pixels a side of the blocks that H.264 and WebP are made of.
_BLOCK = 16
# ITU-T H.264, table A-1, level 6.2.
_H264_BLOCKS = 139_264
_H264_BLOCKS_A_SECOND = 16_711_680
_WEBP_SIDE = 16_383
# Of what each block is like WebP has 512 KiB. A detailed image takes up to ten bits a block; here there are sixteen.
_WEBP_BLOCKS = 2**18


@dataclass(frozen=True, slots=True)
class Holds:
    """What a file holds at most: sides in pixels, and blocks of a frame."""

    max_side: int = MAX_SIDE
    side_multiple: int = 1
    max_fps: float = MAX_FPS
    max_blocks: int | None = None
    max_blocks_a_second: int | None = None


_STILL = Holds()
_ANIMATION = Holds(max_fps=MAX_ANIMATED_FPS)
# By kind of model; the first is what a job gets that names none. PNG holds 2³¹ - 1 pixels a side, JPEG 65,500.
FORMATS: dict[str, dict["MediaFormat.ValueType", Holds]] = {
    "image": {
        MediaFormat.MEDIA_FORMAT_PNG: _STILL,
        MediaFormat.MEDIA_FORMAT_JPEG: _STILL,
        MediaFormat.MEDIA_FORMAT_WEBP: Holds(max_side=_WEBP_SIDE, max_blocks=_WEBP_BLOCKS),
    },
    "video": {
        # Two by two pixels share a colour, so that sides are even.
        MediaFormat.MEDIA_FORMAT_MP4: Holds(
            side_multiple=2, max_blocks=_H264_BLOCKS, max_blocks_a_second=_H264_BLOCKS_A_SECOND
        ),
        MediaFormat.MEDIA_FORMAT_PNG: _ANIMATION,
        MediaFormat.MEDIA_FORMAT_WEBP: Holds(max_side=_WEBP_SIDE, max_blocks=_WEBP_BLOCKS, max_fps=MAX_ANIMATED_FPS),
    },
}


def check_format(spec: JobSpec, media_kind: Literal["image", "video"]) -> list[Violation]:
    """Return why a complete spec's output cannot be a file of its format, by field."""
    formats = FORMATS[media_kind]
    holds = formats.get(spec.output_format)
    if holds is None:
        names = ", ".join(format_name(each) for each in formats)
        return [Violation("spec.output_format", f"this model makes {media_kind}s: {names}")]
    name = format_name(spec.output_format)
    found = [*_check_sides(spec, name, holds), *_check_blocks(spec, name, holds)]
    if media_kind == "video" and holds.max_fps < spec.fps <= MAX_FPS:
        found.append(Violation("spec.fps", f"an animated {name} is shown at {holds.max_fps:g} at most: fewer, or MP4"))
    return found


def format_name(media_format: "MediaFormat.ValueType") -> str:
    """Return its name as people write it: PNG."""
    return str(MediaFormat.Name(media_format)).removeprefix("MEDIA_FORMAT_")


def _check_sides(spec: JobSpec, name: str, holds: Holds) -> list[Violation]:
    found = []
    for field in ("width", "height"):
        side = getattr(spec, field)
        if side > holds.max_side:
            found.append(Violation(f"spec.{field}", f"{name} holds at most {holds.max_side} pixels a side"))
        elif side % holds.side_multiple:
            found.append(Violation(f"spec.{field}", f"must be a multiple of {holds.side_multiple} pixels for {name}"))
    return found


def _check_blocks(spec: JobSpec, name: str, holds: Holds) -> list[Violation]:
    blocks = -(-spec.width // _BLOCK) * -(-spec.height // _BLOCK)
    if holds.max_blocks is not None and blocks > holds.max_blocks:
        why = f"{name} holds at most {holds.max_blocks * _BLOCK**2} pixels, width × height"
        return [Violation("spec.width", why)]
    if holds.max_blocks_a_second is not None and blocks * spec.fps > holds.max_blocks_a_second:
        return [Violation("spec.fps", f"{name} holds at most {holds.max_blocks_a_second // blocks} at this size")]
    return []
