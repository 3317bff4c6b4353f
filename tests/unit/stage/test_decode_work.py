"""Decoding: tiled above a size, whole below it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from services.decoder.decode_work import DecodeWork
from services.stage.checkpoint import Checkpoint
from services.stage.device_thread import DeviceThread
from services.stage.hosted_model import HostedModel
from services.stage.tensors import to_bundle
from triptych.v1.job_pb2 import JobSpec

SIDE = 512


@pytest.fixture
def thread() -> Iterator[DeviceThread]:
    thread = DeviceThread("device")
    thread.start()
    yield thread
    thread.close()


async def pixels(model: HostedModel, thread: DeviceThread, tile_from_pixels: int | None) -> np.ndarray:  # type: ignore[type-arg]
    spec = JobSpec(model="sdxl", prompt="x", width=SIDE, height=SIDE, step_count=1, output_count=1)
    latents = torch.randn((1, 4, SIDE // 8, SIDE // 8), generator=torch.Generator().manual_seed(0))
    work = DecodeWork(model, spec, [to_bundle({"latents": (latents, "")})], tile_from_pixels)
    frames, _ = await thread.run((0.0, ""), lambda: work.run(thread))
    return np.asarray(frames[0]).astype(int)


async def test_large_pictures_are_decoded_in_tiles_and_look_the_same(
    tiny_checkpoints: Path, thread: DeviceThread
) -> None:
    model = HostedModel(
        Checkpoint("sdxl", str(tiny_checkpoints / "sdxl")), ["decode"], torch.float32, torch.device("cpu")
    )
    whole = await pixels(model, thread, None)
    vae = model.block("decode").pipeline.vae
    assert not vae.use_tiling
    assert np.array_equal(await pixels(model, thread, SIDE * SIDE + 1), whole)
    tiled = await pixels(model, thread, SIDE * SIDE)
    assert vae.use_tiling
    assert tiled.shape == whole.shape
    assert not np.array_equal(tiled, whole), "it was not tiled"
    assert np.abs(tiled - whole).mean() < 8
    # The next small one is whole again.
    assert np.array_equal(await pixels(model, thread, None), whole)
