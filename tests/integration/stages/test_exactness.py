"""Split over three processes, the outputs are the stock pipeline's, bit for bit."""

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from tests.integration.stages.stage_calls import StageCalls, job
from tests.stock import StockPipelines, frames_of
from triptych.v1.job_pb2 import (
    ATTACHMENT_ROLE_CONTROL_IMAGE,
    ATTACHMENT_ROLE_IMAGE,
    ATTACHMENT_ROLE_MASK,
    Attachment,
)

TEXT = [("sdxl", {}), ("flux", {}), ("sd3", {"negative_prompt": "a blue square"}), ("wan", {"frame_count": 9})]
IMAGE = [
    ("sdxl", {"step_count": 5, "extra": {"strength": 0.6}}),
    ("flux", {"step_count": 5, "extra": {"strength": 0.6}}),
    ("wan-i2v", {"frame_count": 9}),
]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """As the workers were told: results can differ in the last bit with the number of threads."""
    torch.set_num_threads(1)


@pytest.mark.parametrize(("model", "fields"), TEXT, ids=[model for model, _ in TEXT])
async def test_from_text(calls: StageCalls, stock: StockPipelines, model: str, fields: dict[str, Any]) -> None:
    spec = job(model, **fields)
    [file] = await calls.files(spec)
    assert difference(file, stock.frames(spec)) == 0


@pytest.mark.parametrize(("model", "fields"), IMAGE, ids=[model for model, _ in IMAGE])
async def test_from_an_image(
    calls: StageCalls, stock: StockPipelines, picture: Attachment, model: str, fields: dict[str, Any]
) -> None:
    spec = job(model, attachments=[picture], **fields)
    [file] = await calls.files(spec)
    assert difference(file, stock.frames(spec)) == 0


SHAPES = [
    ("wan-i2v", {"frame_count": 9}, (64, 64), (128, 32)),
    ("wan-i2v", {"frame_count": 9}, (96, 64), (72, 128)),
    ("wan-i2v", {"frame_count": 9}, (64, 96), (16_384, 1)),
    ("sdxl", {"step_count": 5, "extra": {"strength": 0.6}}, (64, 64), (128, 32)),
    ("sdxl", {"step_count": 5, "extra": {"strength": 0.6}}, (96, 64), (50, 80)),
    ("flux", {"step_count": 5, "extra": {"strength": 0.6}}, (64, 64), (128, 32)),
    ("flux", {"step_count": 5, "extra": {"strength": 0.6}}, (96, 64), (50, 80)),
    ("sdxl-control", {}, (96, 64), (50, 80)),
]


@pytest.mark.parametrize(("model", "fields", "size", "shape"), SHAPES)
async def test_an_image_of_another_shape_is_fitted(
    calls: StageCalls,
    stock: StockPipelines,
    model: str,
    fields: dict[str, Any],
    size: tuple[int, int],
    shape: tuple[int, int],
) -> None:
    """As if the stock pipeline were given the image that covers the job's size, cropped around its middle."""
    image = noise(shape)
    role, name = (ATTACHMENT_ROLE_IMAGE, "image")
    if model == "sdxl-control":
        role, name = (ATTACHMENT_ROLE_CONTROL_IMAGE, "control_image")
    attached = [Attachment(role=role, data=png(image))]
    spec = job(model, width=size[0], height=size[1], attachments=attached, **fields)
    [file] = await calls.files(spec)
    fitted = ImageOps.fit(image, size, Image.Resampling.LANCZOS)
    assert difference(file, stock.frames(spec, **{name: fitted})) == 0


@pytest.mark.parametrize("size", [(64, 64), (96, 64)])
async def test_white_is_painted_anew(calls: StageCalls, stock: StockPipelines, size: tuple[int, int]) -> None:
    """The mask is cropped as its image is; black, or opaque where alpha varies, is kept."""
    image, drawn = noise((80, 60)), Image.new("L", (80, 60))
    drawn.paste(255, (40, 0, 80, 60))
    with_alpha = image.copy()
    with_alpha.putalpha(ImageOps.invert(drawn))
    fitted, mask = (ImageOps.fit(each, size, Image.Resampling.LANCZOS) for each in (image, drawn))
    files = []
    for given in (drawn, with_alpha):
        attached = [
            Attachment(role=ATTACHMENT_ROLE_IMAGE, data=png(image)),
            Attachment(role=ATTACHMENT_ROLE_MASK, data=png(given)),
        ]
        fields = {"step_count": 5, "extra": {"strength": 0.9}, "attachments": attached}
        spec = job("sdxl", width=size[0], height=size[1], **fields)
        files += await calls.files(spec)
    want = stock.frames(spec, image=fitted, mask_image=mask)
    assert [difference(file, want) for file in files] == [0, 0]
    assert not np.array_equal(want, stock.frames(spec, image=fitted, mask_image=ImageOps.invert(mask)))


async def test_each_output_is_the_single_picture_of_its_seed(calls: StageCalls, stock: StockPipelines) -> None:
    spec = job("sdxl", output_count=3)
    files = await calls.files(spec)
    assert [difference(file, stock.frames(spec, index)) for index, file in enumerate(files)] == [0, 0, 0]


async def test_each_output_from_an_image_has_noise_of_its_own(
    calls: StageCalls, stock: StockPipelines, picture: Attachment
) -> None:
    spec = job("sdxl", output_count=2, step_count=5, attachments=[picture], extra={"strength": 0.6})
    files = await calls.files(spec)
    assert files[0] != files[1]
    assert [difference(file, stock.frames(spec, index)) for index, file in enumerate(files)] == [0, 0]


async def test_a_negative_prompt_and_no_guidance(calls: StageCalls, stock: StockPipelines) -> None:
    negative = {"negative_prompt": "a blue square"}
    # The stock blocks of SD3 guide by a negative prompt alone.
    for spec in (job("sdxl", **negative), job("sdxl", guidance=1.0), job("sd3", guidance=1.0, **negative)):
        [file] = await calls.files(spec)
        assert difference(file, stock.frames(spec)) == 0


@pytest.mark.parametrize("model", ["sdxl", "sd3"])
async def test_an_empty_negative_prompt_is_not_the_same_as_none(
    calls: StageCalls, stock: StockPipelines, model: str
) -> None:
    files = []
    for texts in ({}, {"negative_prompt": ""}, {"negative_prompt": "a blue square"}):
        spec = job(model, **texts)
        [file] = await calls.files(spec)
        assert difference(file, stock.frames(spec, **texts)) == 0
        files.append(file)
    assert len(set(files)) == 3


@pytest.mark.parametrize(("model", "fields"), TEXT, ids=[model for model, _ in TEXT])
@pytest.mark.parametrize("prompt", ["", " \n", "e\u0301 and \u00e9, \ufb01ne"], ids=["empty", "blank", "unicode"])
async def test_a_prompt_is_handed_over_as_it_is(
    calls: StageCalls, stock: StockPipelines, model: str, fields: dict[str, Any], prompt: str
) -> None:
    spec = job(model, prompt=prompt, **fields)
    [file] = await calls.files(spec)
    assert difference(file, stock.frames(spec, prompt=prompt)) == 0


def noise(shape: tuple[int, int]) -> Image.Image:
    pixels = np.random.RandomState(1).randint(0, 256, (shape[1], shape[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def difference(file: bytes, want: np.ndarray[Any, Any]) -> int:
    """The largest difference of a channel."""
    got = frames_of(file)
    assert got.shape == want.shape
    assert want.std() > 1, "a flat picture would prove nothing"
    return int(np.abs(got.astype(int) - want.astype(int)).max())
