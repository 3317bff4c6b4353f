"""WebP files, still or animated. An animation has each of its frames: libwebp's own writer merges equal ones."""

import io
import struct
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from PIL import Image

from services.decoder.srgb import ICC_PROFILE

# Flags of the format: in the header, and of a frame that covers what was there before.
_HAS_PROFILE, _IS_ANIMATED = 0x20, 0x02
_COVERS = 0x02


def webp(frames: Sequence[Image.Image], seconds: Fraction, *, quality: int, effort: int) -> bytes:
    """Return the file of one frame, or of several that are shown for so many seconds together, again and again.

    `effort` is 0 (quick) to 6 (small).
    """
    options = {"quality": quality, "method": effort}
    if len(frames) == 1:
        return _still(frames[0], icc_profile=ICC_PROFILE, **options)
    chunks = [
        _chunk(b"VP8X", struct.pack("<I", _HAS_PROFILE | _IS_ANIMATED) + _size(frames[0])),
        _chunk(b"ICCP", ICC_PROFILE),
        # No background, no end.
        _chunk(b"ANIM", bytes(6)),
    ]
    for frame, duration_ms in zip(frames, durations_ms(len(frames), seconds), strict=True):
        # At the left, at the top. What follows a still's first 12 bytes is its image.
        header = bytes(6) + _size(frame) + duration_ms.to_bytes(3, "little") + bytes([_COVERS])
        chunks.append(_chunk(b"ANMF", header + _still(frame, **options)[12:]))
    return _chunk(b"RIFF", b"WEBP" + b"".join(chunks))


def durations_ms(count: int, seconds: Fraction) -> list[int]:
    """Return how long each frame is shown, so that none begins more than half a millisecond early or late."""
    starts = [round(1000 * seconds * index / count) for index in range(count + 1)]
    return [end - start for start, end in pairwise(starts)]


def _still(frame: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    frame.convert("RGB").save(file, "WEBP", **options)
    return file.getvalue()


def _size(frame: Image.Image) -> bytes:
    return b"".join((side - 1).to_bytes(3, "little") for side in frame.size)


def _chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)
