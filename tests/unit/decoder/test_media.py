"""Files from frames."""

import io

import av
import numpy as np
import pytest
from PIL import Image

from services.decoder.media import encode_media
from triptych.v1.job_pb2 import (
    MEDIA_FORMAT_JPEG,
    MEDIA_FORMAT_MP4,
    MEDIA_FORMAT_PNG,
    MEDIA_FORMAT_UNSPECIFIED,
    MEDIA_FORMAT_WEBP,
    MediaFormat,
)


def gradient(shift: int) -> Image.Image:
    """64 × 48, different for each shift."""
    rows, columns = np.mgrid[0:48, 0:64]
    return Image.fromarray(np.stack([rows * 4, columns * 3, np.full_like(rows, shift * 9)], -1).astype(np.uint8))


FRAMES = [gradient(shift) for shift in range(9)]


def test_png_keeps_every_bit() -> None:
    data, media_type = encode_media(FRAMES[:1], MEDIA_FORMAT_PNG, 16.0, is_video=False)
    assert media_type == "image/png"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(data))), np.asarray(FRAMES[0]))


def test_an_animated_png_keeps_every_bit_of_every_frame() -> None:
    picture = Image.open(io.BytesIO(encode_media(FRAMES, MEDIA_FORMAT_PNG, 8.0, is_video=True)[0]))
    assert picture.n_frames == 9
    for index, frame in enumerate(FRAMES):
        picture.seek(index)
        assert np.array_equal(np.asarray(picture.convert("RGB")), np.asarray(frame))


@pytest.mark.parametrize(
    ("media_format", "media_type"), [(MEDIA_FORMAT_JPEG, "image/jpeg"), (MEDIA_FORMAT_WEBP, "image/webp")]
)
def test_lossy_pictures_are_close(media_format: "MediaFormat.ValueType", media_type: str) -> None:
    data, got = encode_media(FRAMES[:1], media_format, 16.0, is_video=False)
    assert got == media_type
    pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(int)
    assert np.abs(pixels - np.asarray(FRAMES[0])).mean() < 4


def test_mp4_has_every_frame_at_its_rate() -> None:
    data, media_type = encode_media(FRAMES, MEDIA_FORMAT_MP4, 8.0, is_video=True)
    assert media_type == "video/mp4"
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.video[0]
        assert stream.average_rate == 8
        frames = [frame.to_ndarray(format="rgb24").astype(int) for frame in container.decode(stream)]
    assert len(frames) == 9
    for frame, want in zip(frames, FRAMES, strict=True):
        assert np.abs(frame - np.asarray(want)).mean() < 6


def test_the_unspecified_format_follows_the_model() -> None:
    assert encode_media(FRAMES[:1], MEDIA_FORMAT_UNSPECIFIED, 16.0, is_video=False)[1] == "image/png"
    assert encode_media(FRAMES[:1], MEDIA_FORMAT_UNSPECIFIED, 16.0, is_video=True)[1] == "video/mp4"
