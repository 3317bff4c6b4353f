"""What the router takes for the most that a file holds, the encoders make of it: on their longest side, here."""

import io

import av
import numpy as np
import pytest
from PIL import Image

from services.decoder.media import encode_media
from triptych.v1.job_pb2 import MEDIA_FORMAT_JPEG, MEDIA_FORMAT_MP4, MEDIA_FORMAT_PNG, MEDIA_FORMAT_WEBP, MediaFormat


@pytest.mark.parametrize(
    ("media_format", "count", "side"),
    [
        (MEDIA_FORMAT_PNG, 1, 16_384),
        (MEDIA_FORMAT_PNG, 2, 16_384),
        (MEDIA_FORMAT_JPEG, 1, 16_384),
        (MEDIA_FORMAT_WEBP, 1, 16_383),
        (MEDIA_FORMAT_WEBP, 2, 16_383),
    ],
)
def test_the_longest_image(media_format: "MediaFormat.ValueType", count: int, side: int) -> None:
    for size in ((side, 16), (16, side)):
        data, _ = encode_media([Image.new("RGB", size, "teal")] * count, media_format, 90.0, is_video=count > 1)
        file = Image.open(io.BytesIO(data))
        assert (file.size, getattr(file, "n_frames", 1)) == (size, count)


def test_the_longest_video() -> None:
    for size in ((16_384, 16), (16, 16_384)):
        data, _ = encode_media([Image.new("RGB", size, "teal")] * 2, MEDIA_FORMAT_MP4, 240.0, is_video=True)
        with av.open(io.BytesIO(data)) as container:
            assert [(frame.width, frame.height) for frame in container.decode(video=0)] == [size] * 2


def test_a_large_detailed_frame_of_an_animation() -> None:
    """What WebP has to say of its blocks takes more than there is room for, unless the encoder heeds it."""
    spots = np.random.RandomState(0).randint(0, 256, (820, 820, 3), dtype=np.uint8)
    frames = [Image.fromarray(spots).resize((4_096, 4_096)), Image.new("RGB", (4_096, 4_096), "teal")]
    data, _ = encode_media(frames, MEDIA_FORMAT_WEBP, 16.0, is_video=True)
    assert getattr(Image.open(io.BytesIO(data)), "n_frames", 1) == 2
