"""Every frame of a video is in its file, and is shown when it is due, in every format."""

import io
from collections.abc import Iterable
from itertools import accumulate

import av
import pytest
from PIL import Image

from services.decoder.media import encode_media
from services.decoder.preview_file import preview_file
from triptych.v1.job_pb2 import MEDIA_FORMAT_MP4, MEDIA_FORMAT_PNG, MEDIA_FORMAT_WEBP, MediaFormat

ANIMATED = [MEDIA_FORMAT_PNG, MEDIA_FORMAT_WEBP]
RATES = [0.1, 1.0, 8.0, 23.976, 24.0, 25.0, 29.97, 30.0, 59.94, 60.0, 90.0]
COUNT = 61
HALF_A_MS = 0.0005


def moving(count: int) -> list[Image.Image]:
    return [Image.new("RGB", (16, 16), (4 * index, 0, 128)) for index in range(count)]


def still(count: int) -> list[Image.Image]:
    return [Image.new("RGB", (16, 16), "teal") for _ in range(count)]


def shown_ms(data: bytes) -> list[float]:
    """How long each frame of an animated image is shown."""
    file = Image.open(io.BytesIO(data))
    times = []
    for index in range(getattr(file, "n_frames", 1)):
        file.seek(index)
        file.load()
        times.append(float(file.info["duration"]))
    return times


def latest_s(durations_ms: Iterable[float], fps: float) -> float:
    """By how much the worst frame begins, or the last ends, early or late."""
    ends = accumulate(each / 1000 for each in durations_ms)
    return max(abs(end - index / fps) for index, end in enumerate(ends, start=1))


@pytest.mark.parametrize("fps", RATES)
@pytest.mark.parametrize("media_format", ANIMATED)
@pytest.mark.parametrize("frames", [moving(COUNT), still(COUNT)], ids=["moving", "still"])
def test_an_animation_keeps_time(frames: list[Image.Image], media_format: "MediaFormat.ValueType", fps: float) -> None:
    times = shown_ms(encode_media(frames, media_format, fps, is_video=True)[0])
    assert len(times) == COUNT
    assert latest_s(times, fps) <= HALF_A_MS
    assert min(times) > 10, "browsers show it for 100 ms"


@pytest.mark.parametrize("fps", [*RATES, 119.88, 240.0])
@pytest.mark.parametrize("count", [1, COUNT])
def test_a_video_keeps_time(count: int, fps: float) -> None:
    data, _ = encode_media(moving(count), MEDIA_FORMAT_MP4, fps, is_video=True)
    with av.open(io.BytesIO(data)) as container:
        stream = container.streams.video[0]
        starts = [float(frame.pts * stream.time_base) for frame in container.decode(stream)]
        whole = float(stream.duration * stream.time_base)
    assert starts == pytest.approx([index / fps for index in range(count)], abs=HALF_A_MS)
    assert whole == pytest.approx(count / fps, abs=HALF_A_MS)


@pytest.mark.parametrize("media_format", [*ANIMATED, MEDIA_FORMAT_MP4])
def test_a_video_of_one_frame_is_in_every_format(media_format: "MediaFormat.ValueType") -> None:
    data, media_type = encode_media(moving(1), media_format, 16.0, is_video=True)
    if media_type == "video/mp4":
        with av.open(io.BytesIO(data)) as container:
            assert len(list(container.decode(video=0))) == 1
    else:
        assert Image.open(io.BytesIO(data)).size == (16, 16)


@pytest.mark.parametrize("media_format", ANIMATED)
def test_frames_of_an_animation_follow_one_another(media_format: "MediaFormat.ValueType") -> None:
    """Equal ones too, wherever they are."""
    colours = ["red", "red", "blue", "blue", "red", "red"]
    frames = [Image.new("RGB", (18, 15), colour) for colour in colours]
    file = Image.open(io.BytesIO(encode_media(frames, media_format, 60.0, is_video=True)[0]))
    seen = []
    for index in range(getattr(file, "n_frames", 1)):
        file.seek(index)
        red, _, blue = file.convert("RGB").getpixel((9, 7))  # type: ignore[misc]
        seen.append("red" if red > blue else "blue")
    assert seen == colours


def test_a_previews_frames_are_shown_for_as_long_as_the_video_takes() -> None:
    for frames in (moving(8), still(8)):
        times = shown_ms(preview_file(frames, (16, 16), 64, 33 / 29.97)[0])
        assert len(times) == 8
        assert abs(sum(times) / 1000 - 33 / 29.97) <= HALF_A_MS


def test_no_frame_of_a_preview_is_too_short_for_a_browser() -> None:
    times = shown_ms(preview_file(moving(8), (16, 16), 64, 8 / 240)[0])
    assert min(times) > 10
