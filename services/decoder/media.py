"""Files from frames: PNG, JPEG and WebP with Pillow, MP4 with PyAV. All in memory: nothing is written to a disk."""

import io
from fractions import Fraction

from PIL import Image

from services.decoder.mp4 import mp4
from services.decoder.srgb import ICC_PROFILE, PNG_CHUNKS
from services.decoder.webp import webp
from triptych.errors import Reason, TriptychError
from triptych.v1.job_pb2 import (
    MEDIA_FORMAT_JPEG,
    MEDIA_FORMAT_MP4,
    MEDIA_FORMAT_PNG,
    MEDIA_FORMAT_UNSPECIFIED,
    MEDIA_FORMAT_WEBP,
    MediaFormat,
)

MEDIA_TYPES: dict["MediaFormat.ValueType", str] = {
    MEDIA_FORMAT_PNG: "image/png",
    MEDIA_FORMAT_JPEG: "image/jpeg",
    MEDIA_FORMAT_WEBP: "image/webp",
    MEDIA_FORMAT_MP4: "video/mp4",
}
JPEG_QUALITY = 92
WEBP_QUALITY = 90
# More takes an animation twice the time, and gains nothing. With less than 2, WebP does not hold large detailed frames.
STILL_EFFORT, ANIMATION_EFFORT = 4, 2
# Of a video whose job says nothing of it.
DEFAULT_FPS = 16.0


def encode_media(
    frames: list[Image.Image], media_format: "MediaFormat.ValueType", fps: float, *, is_video: bool
) -> tuple[bytes, str]:
    """Return the file and its media type. PNG keeps every bit; of several frames it, and WebP, are animated.

    An unspecified format is MP4 for a video (of one frame too), else PNG.
    """
    if media_format == MEDIA_FORMAT_UNSPECIFIED:
        media_format = MEDIA_FORMAT_MP4 if is_video else MEDIA_FORMAT_PNG
    return _file(frames, media_format, frame_rate(fps)), MEDIA_TYPES[media_format]


def frame_rate(fps: float) -> Fraction:
    """Return the frame rate as the files have it: a fraction of small numbers."""
    return Fraction(fps).limit_denominator(1001)


def _file(frames: list[Image.Image], media_format: "MediaFormat.ValueType", rate: Fraction) -> bytes:
    match media_format:
        case MediaFormat.MEDIA_FORMAT_MP4:
            return mp4(frames, rate)
        case MediaFormat.MEDIA_FORMAT_WEBP:
            effort = STILL_EFFORT if len(frames) == 1 else ANIMATION_EFFORT
            return webp(frames, len(frames) / rate, quality=WEBP_QUALITY, effort=effort)
        case MediaFormat.MEDIA_FORMAT_PNG:
            return _png(frames, rate)
        case _:
            return _jpeg(frames)


def _png(frames: list[Image.Image], rate: Fraction) -> bytes:
    options: dict[str, object] = {"compress_level": 4, "pnginfo": PNG_CHUNKS}
    first, *others = [frame.convert("RGB") for frame in frames]
    if others:
        # Pillow merges equal frames of one blending; to frames without transparency both blendings are the same.
        blends = [index % 2 for index in range(len(frames))]
        options |= {
            "save_all": True,
            "append_images": others,
            "blend": blends,
            "duration": float(1000 / rate),
            "loop": 0,
        }
    file = io.BytesIO()
    first.save(file, "PNG", **options)
    return file.getvalue()


def _jpeg(frames: list[Image.Image]) -> bytes:
    if len(frames) > 1:
        why = f"JPEG holds one image, and the model made {len(frames)}: ask for PNG or WEBP"
        raise TriptychError(Reason.STAGE_FAILED, why)
    file = io.BytesIO()
    # With colours at full resolution.
    options = {"quality": JPEG_QUALITY, "subsampling": 0, "icc_profile": ICC_PROFILE}
    frames[0].convert("RGB").save(file, "JPEG", **options)
    return file.getvalue()
