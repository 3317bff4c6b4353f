"""What is shown is what was made, in every format, whether a player heeds what a video says of its colours or not."""

import io

import av
import numpy as np
import pytest
from PIL import Image, ImageCms

from services.decoder.media import encode_media
from services.decoder.preview_file import preview_file
from tests.unit.decoder.colours import COLOURS, MATRICES, TOLERANCE, board, decoded, far_off, shown
from triptych.v1.job_pb2 import MEDIA_FORMAT_JPEG, MEDIA_FORMAT_MP4, MEDIA_FORMAT_PNG, MEDIA_FORMAT_WEBP, MediaFormat

# Of standard and of high definition, upright too, and on both sides of where players begin to take it for high.
VIDEO_SIZES = [(640, 360), (480, 640), (832, 480), (1278, 718), (1280, 720), (480, 832)]
IMAGES = {MEDIA_FORMAT_PNG: 0, MEDIA_FORMAT_JPEG: TOLERANCE, MEDIA_FORMAT_WEBP: TOLERANCE}


def video(size: tuple[int, int]) -> tuple[list[Image.Image], bytes]:
    """Three frames, with every colour in three places, and their file."""
    frames = [board(size, turn) for turn in range(3)]
    return frames, encode_media(frames, MEDIA_FORMAT_MP4, 16.0, is_video=True)[0]


@pytest.mark.parametrize("size", VIDEO_SIZES)
def test_a_player_that_heeds_what_a_video_says_shows_its_colours(size: tuple[int, int]) -> None:
    frames, data = video(size)
    for frame, made in zip(decoded(data), frames, strict=True):
        assert far_off(shown(frame, MATRICES[frame.colorspace]), made) <= TOLERANCE


@pytest.mark.parametrize("size", VIDEO_SIZES)
def test_a_player_that_guesses_by_the_height_shows_its_colours(size: tuple[int, int]) -> None:
    frames, data = video(size)
    guess = MATRICES[1 if size[1] >= 720 else 6]
    for frame, made in zip(decoded(data), frames, strict=True):
        assert far_off(shown(frame, guess), made) <= TOLERANCE


@pytest.mark.parametrize(("size", "matrix"), [((832, 480), 6), ((1280, 720), 1)])
def test_a_video_says_which_colours_it_has(size: tuple[int, int], matrix: int) -> None:
    """In the stream, which some players read, and in the container, which others do: sRGB in limited range."""
    _, data = video(size)
    with av.open(io.BytesIO(data)) as container:
        context = container.streams.video[0].codec_context
        [frame, *_] = container.decode(video=0)
    for told in (context, frame):
        assert (told.color_primaries, told.color_trc, told.colorspace, told.color_range) == (1, 13, matrix, 1)
    assert data.count(b"colrnclx" + bytes([0, 1, 0, 13, 0, matrix, 0])) == 1


@pytest.mark.parametrize("size", [(16, 16), (96, 96), (96, 720)])
@pytest.mark.parametrize("name", COLOURS)
def test_a_flat_video_has_its_colour_everywhere(name: str, size: tuple[int, int]) -> None:
    made = Image.new("RGB", size, COLOURS[name])
    [frame] = decoded(encode_media([made], MEDIA_FORMAT_MP4, 16.0, is_video=True)[0])
    assert np.abs(shown(frame, MATRICES[frame.colorspace]).astype(int) - np.asarray(made)).max() <= TOLERANCE


@pytest.mark.parametrize("size", [(320, 240), (321, 241), (832, 480)])
@pytest.mark.parametrize("media_format", IMAGES)
def test_an_image_has_its_colours(media_format: "MediaFormat.ValueType", size: tuple[int, int]) -> None:
    made = board(size)
    data, _ = encode_media([made], media_format, 16.0, is_video=False)
    assert far_off(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")), made) <= IMAGES[media_format]


def test_a_jpeg_has_its_colours_at_edges_too() -> None:
    made = board((64, 48))
    data, _ = encode_media([made], MEDIA_FORMAT_JPEG, 16.0, is_video=False)
    off = np.abs(np.asarray(Image.open(io.BytesIO(data))).astype(int) - np.asarray(made))
    assert off.mean() < 2


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("media_format", [MEDIA_FORMAT_PNG, MEDIA_FORMAT_WEBP])
def test_an_image_says_that_it_is_srgb(media_format: "MediaFormat.ValueType", count: int) -> None:
    data, _ = encode_media([board((64, 48), turn) for turn in range(count)], media_format, 16.0, is_video=True)
    said = Image.open(io.BytesIO(data)).info
    assert said.get("srgb") == 0 if media_format == MEDIA_FORMAT_PNG else _is_srgb(said["icc_profile"])


def test_a_jpeg_says_that_it_is_srgb() -> None:
    data, _ = encode_media([board((64, 48))], MEDIA_FORMAT_JPEG, 16.0, is_video=False)
    assert _is_srgb(Image.open(io.BytesIO(data)).info["icc_profile"])


@pytest.mark.parametrize("count", [1, 3])
def test_a_preview_has_its_colours(count: int) -> None:
    frames = [board((512, 384), turn) for turn in range(count)]
    data, _ = preview_file(frames, (512, 384), 512, 1.0)
    file = Image.open(io.BytesIO(data))
    for index, made in enumerate(frames):
        file.seek(index)
        assert far_off(np.asarray(file.convert("RGB")), made) <= TOLERANCE


def _is_srgb(profile: bytes) -> bool:
    return "sRGB" in ImageCms.getProfileName(ImageCms.ImageCmsProfile(io.BytesIO(profile)))
