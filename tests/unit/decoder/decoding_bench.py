"""A decode stage of tiny checkpoints in this process, for tests of what happens in the middle of a decode."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from services.decoder.decode_work import DecodeWork
from services.decoder.pictures import Frames, pictures
from services.stage.checkpoint import Checkpoint
from services.stage.device_thread import DeviceThread
from services.stage.hosted_block import HostedBlock
from services.stage.hosted_model import HostedModel
from services.stage.tensors import to_bundle
from services.stage.yield_points import add_yield_points
from triptych.v1.job_pb2 import JobSpec

CPU = torch.device("cpu")


class DecodingBench:
    """One model's decode stage; `before_block` is called before each block of its VAE."""

    def __init__(
        self,
        checkpoints: Path,
        name: str,
        before_block: Callable[[], None],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.name = name
        self._before_block = before_block
        self.model = HostedModel(Checkpoint(name, str(checkpoints / name)), ["decode"], dtype, CPU, self._prepare)

    @property
    def vae(self) -> torch.nn.Module:
        """The shared one, of which each job has a copy."""
        vae: torch.nn.Module = self.model.block("decode").networks["vae"]
        return vae

    def work(
        self, seed: int, side: int = 64, latent_frames: int = 3, tile_from_pixels: int | None = None
    ) -> DecodeWork:
        channels, frames = (16, (latent_frames,)) if self.name == "wan" else (4, ())
        generator = torch.Generator().manual_seed(seed)
        latents = torch.randn((1, channels, *frames, side // 8, side // 8), generator=generator).to(self.model.dtype)
        spec = JobSpec(model=self.name, prompt="x", width=side, height=side, step_count=1, output_count=1)
        return DecodeWork(self.model, spec, [to_bundle({"latents": (latents, "")})], tile_from_pixels)

    def _prepare(self, hosted: HostedBlock) -> None:
        for network in hosted.networks.values():
            add_yield_points(network, self._before_block)


def pixels(frames: Frames) -> np.ndarray:  # type: ignore[type-arg]
    """Frames × height × width × 3, 0 to 255."""
    return np.stack([np.asarray(picture) for picture in pictures(frames)]).astype(int)


async def run(
    thread: DeviceThread, work: DecodeWork, rank: float = 1.0, began: Callable[[], None] = lambda: None
) -> np.ndarray:  # type: ignore[type-arg]
    """The pixels; `began` is told, on the device thread, when its turn has come."""

    def function() -> tuple[Frames, float]:
        began()
        return work.run(thread)

    frames, _ = await thread.run((rank, ""), function)
    return pixels(frames)
