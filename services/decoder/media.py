"""Files from frames: PNG, JPEG and WebP with Pillow, MP4 with PyAV."""

import io
import tempfile
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from PIL import Image

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
# x264's constant rate factor: 18 is taken to be visually lossless.
MP4_CRF = "18"
# Of a video whose job says nothing of it.
DEFAULT_FPS = 16.0


def encode_media(
    frames: list[Image.Image], media_format: "MediaFormat.ValueType", fps: float, *, is_video: bool
) -> tuple[bytes, str]:
    """The file and its media type. PNG keeps every bit; for several frames it, and WebP, are animated.

    An unspecified format is MP4 for a video (of one frame too), else PNG.
    """
    if media_format == MEDIA_FORMAT_UNSPECIFIED:
        media_format = MEDIA_FORMAT_MP4 if is_video else MEDIA_FORMAT_PNG
    if media_format == MEDIA_FORMAT_MP4:
        return _mp4(frames, fps), MEDIA_TYPES[media_format]
    return _with_pillow(frames, media_format, fps), MEDIA_TYPES[media_format]


def _with_pillow(frames: list[Image.Image], media_format: "MediaFormat.ValueType", fps: float) -> bytes:
    options: dict[str, object] = {
        MEDIA_FORMAT_PNG: {"format": "PNG", "compress_level": 4},
        MEDIA_FORMAT_JPEG: {"format": "JPEG", "quality": JPEG_QUALITY},
        MEDIA_FORMAT_WEBP: {"format": "WEBP", "quality": WEBP_QUALITY},
    }[media_format]
    first, *others = [frame.convert("RGB") for frame in frames]
    if others:
        options = {**options, "save_all": True, "append_images": others, "duration": round(1000 / fps), "loop": 0}
    file = io.BytesIO()
    first.save(file, **options)  # type: ignore[arg-type]
    return file.getvalue()


def _mp4(frames: list[Image.Image], fps: float) -> bytes:
    # In a real file: moving the index to the front, so that players can start before the end, reads it again.
    with tempfile.TemporaryDirectory(prefix="triptych-") as folder:
        path = Path(folder) / "video.mp4"
        with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
            stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(1001))
            stream.width, stream.height = frames[0].size
            stream.pix_fmt = "yuv420p"
            stream.options = {"crf": MP4_CRF, "preset": "veryfast"}
            for frame in frames:
                pixels = np.asarray(frame.convert("RGB"))
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            container.mux(stream.encode())
        return path.read_bytes()
