"""Split over three processes, the outputs are the stock pipeline's, bit for bit."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.integration.stages.stage_calls import StageCalls, job
from tests.stock import StockPipelines, frames_of
from triptych.v1.job_pb2 import Attachment

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


def difference(file: bytes, want: np.ndarray[Any, Any]) -> int:
    """The largest difference of a channel."""
    got = frames_of(file)
    assert got.shape == want.shape
    assert want.std() > 1, "a flat picture would prove nothing"
    return int(np.abs(got.astype(int) - want.astype(int)).max())
