"""A preview's file: within its size and its bytes, animated for a video."""

import io

import numpy as np
import pytest
from PIL import Image

from services.decoder.preview_file import MAX_BYTES, preview_file


def noise(side: int, count: int = 1) -> list[Image.Image]:
    random = np.random.RandomState(0)
    return [Image.fromarray(random.randint(0, 256, (side, side, 3), dtype=np.uint8)) for _ in range(count)]


@pytest.mark.parametrize(
    ("size", "max_side", "want"),
    [((96, 96), 256, (96, 96)), ((1024, 512), 256, (256, 128)), ((512, 1024), 32, (16, 32)), ((2048, 16), 64, (64, 1))],
)
def test_the_longer_side_is_at_most_what_is_asked_for(
    size: tuple[int, int], max_side: int, want: tuple[int, int]
) -> None:
    data, made = preview_file(noise(12), size, max_side, 0.0)
    assert made == want
    assert Image.open(io.BytesIO(data), formats=["WEBP"]).size == want


def test_a_video_moves_for_as_long_as_it_will_take() -> None:
    data, _ = preview_file(noise(12, 4), (96, 96), 64, 2.0)
    file = Image.open(io.BytesIO(data), formats=["WEBP"])
    assert getattr(file, "n_frames", 1) == 4
    file.seek(3)
    file.load()
    assert file.info["duration"] == 500


def test_what_would_be_too_long_is_made_smaller() -> None:
    data, (width, height) = preview_file(noise(1024, 8), (1024, 1024), 1024, 2.0)
    assert len(data) <= MAX_BYTES
    assert width == height < 1024
