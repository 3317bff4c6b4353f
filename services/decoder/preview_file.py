"""A preview as a file: WebP, animated for a video, small enough to pass through everything on its way."""

from collections.abc import Iterator
from fractions import Fraction

from services.decoder.pictures import Frames, pictures
from services.decoder.webp import webp
from triptych.limits import MAX_ANIMATED_FPS

MEDIA_TYPE = "image/webp"
# Well below what one gRPC message may hold.
MAX_BYTES = 2 * 1024 * 1024
_QUALITIES = (80, 40)
# 0 (quick) to 6 (small).
_EFFORT = 2


def preview_file(frames: Frames, size: tuple[int, int], max_side: int, seconds: float) -> tuple[bytes, tuple[int, int]]:
    """The file and its width and height: `size`, shrunk so that the longer side is at most `max_side`.

    `seconds` is how long all frames of a video together are shown: longer where browsers would show none so shortly.
    Shrunk further while it is above `MAX_BYTES`.
    """
    made = pictures(frames)
    shown_s = max(Fraction(seconds), len(made) / Fraction(MAX_ANIMATED_FPS))
    for smaller, quality in _tries(_fitted(size, max_side)):
        resized = [frame.convert("RGB").resize(smaller) for frame in made]
        data = webp(resized, shown_s, quality=quality, effort=_EFFORT)
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
