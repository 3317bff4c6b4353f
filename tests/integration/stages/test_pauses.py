"""Paused in the middle of a forward, again and again, a job is the stock pipeline's all the same, bit for bit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from diffusers.guiders import AdaptiveProjectedGuidance

from services.stage.checkpoint import DENOISE
from services.stage.device_thread import DeviceThread
from tests.integration.stages.cases import CASES, SAMPLERS, case_spec
from tests.integration.stages.paused_model import PausedModel
from tests.stock import StockPipelines
from triptych.v1.job_pb2 import Attachment, JobSpec

PAUSES = 10
NETWORKS = {
    "sdxl": {"unet"},
    "flux": {"transformer"},
    "sd3": {"transformer"},
    "wan": {"transformer"},
    "wan-i2v": {"transformer"},
    "wan22": {"transformer", "transformer_2"},
    "sdxl-control": {"unet", "controlnet"},
}


@pytest.fixture
def thread() -> Iterator[DeviceThread]:
    torch.set_num_threads(1)
    thread = DeviceThread("device")
    thread.start()
    yield thread
    thread.close()


async def assert_exact(model: PausedModel, stock: StockPipelines, spec: JobSpec) -> None:
    """Nothing differs from the stock pipeline, and the job was paused as often as it should be."""
    made, want = await model.frames(spec), stock.frames(spec)
    assert model.pauses == PAUSES
    assert want.std() > 1, "a flat picture would prove nothing"
    assert made.shape == want.shape
    assert float(np.abs(made.astype(int) - want.astype(int)).max()) == 0.0


@pytest.mark.parametrize("case", CASES)
async def test_every_model(
    tiny_checkpoints: Path, stock: StockPipelines, thread: DeviceThread, picture: Attachment, case: str
) -> None:
    spec = case_spec(case, picture)
    model = PausedModel(tiny_checkpoints, spec.model, thread, PAUSES)
    await assert_exact(model, stock, spec)
    assert model.blocks.keys() == NETWORKS[spec.model]
    assert all(model.blocks.values()), "each network had a share in it"


@pytest.mark.parametrize("sampler", SAMPLERS)
async def test_every_sampler(tiny_checkpoints: Path, thread: DeviceThread, sampler: str) -> None:
    name, options = SAMPLERS[sampler]
    stock, model = StockPipelines(tiny_checkpoints), PausedModel(tiny_checkpoints, "sdxl", thread, PAUSES)
    for pipeline in (stock.pipeline("sdxl"), model.denoise.block(DENOISE).pipeline):
        pipeline.scheduler = getattr(diffusers, name).from_config(pipeline.scheduler.config, **options)
    await assert_exact(model, stock, case_spec("sdxl"))


async def test_a_guider_with_memory(tiny_checkpoints: Path, thread: DeviceThread) -> None:
    stock, model = StockPipelines(tiny_checkpoints), PausedModel(tiny_checkpoints, "sdxl", thread, PAUSES)
    stepping: Any = AdaptiveProjectedGuidance(adaptive_projected_guidance_momentum=-0.5)
    stock.pipeline("sdxl").guider = model.denoise.block(DENOISE).pipeline.guider = stepping
    await assert_exact(model, stock, case_spec("sdxl"))
