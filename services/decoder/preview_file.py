"""A preview as a file: WebP, animated for a video, small enough to pass through everything on its way."""

import io
from collections.abc import Iterator

from PIL import Image

from services.decoder.pictures import Frames, pictures

MEDIA_TYPE = "image/webp"
# Well below what one gRPC message may hold.
MAX_BYTES = 2 * 1024 * 1024
_QUALITIES = (80, 40)
# 0 (quick) to 6 (small).
_EFFORT = 2


def preview_file(frames: Frames, size: tuple[int, int], max_side: int, seconds: float) -> tuple[bytes, tuple[int, int]]:
    """The file and its width and height: `size`, shrunk so that the longer side is at most `max_side`.

    `seconds` is how long all frames of a video together are shown. Shrunk further while it is above `MAX_BYTES`.
    """
    made = pictures(frames)
    for smaller, quality in _tries(_fitted(size, max_side)):
        data = _webp([frame.convert("RGB").resize(smaller) for frame in made], quality, seconds)
        if len(data) <= MAX_BYTES:
            break
    return data, smaller


def _fitted(size: tuple[int, int], max_side: int) -> tuple[int, int]:
    factor = min(1.0, max_side / max(size))
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))


def _tries(size: tuple[int, int]) -> Iterator[tuple[tuple[int, int], int]]:
    while True:
        yield from ((size, quality) for quality in _QUALITIES)
        size = max(1, size[0] // 2), max(1, size[1] // 2)


def _webp(frames: list[Image.Image], quality: int, seconds: float) -> bytes:
    file = io.BytesIO()
    options: dict[str, object] = {"quality": quality, "method": _EFFORT}
    if len(frames) > 1:
        duration_ms = max(1, round(1000 * seconds / len(frames)))
        options |= {"save_all": True, "append_images": frames[1:], "duration": duration_ms, "loop": 0}
    frames[0].save(file, "WEBP", **options)
    return file.getvalue()
