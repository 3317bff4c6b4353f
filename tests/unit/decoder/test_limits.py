"""What the router takes for the most that a file holds, the encoders make of it: on their longest side, here."""

import io

import av
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
