"""One model's three stages in this process, its denoise interrupted by better-ranked jobs in the middle of forwards."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import torch

from services.decoder.decode_work import DecodeWork
from services.decoder.pictures import pictures
from services.denoiser.amendments import Amendments
from services.denoiser.denoise_work import DenoiseWork
from services.encoder.block_work import BlockWork
from services.stage.checkpoint import DENOISE, Checkpoint
from services.stage.device_thread import DeviceThread
from services.stage.hosted_model import HostedModel
from services.stage.job_inputs import guidance, noise
from services.stage.tensors import from_bundle
from services.stage.yield_points import add_yield_points
from tests.unit.denoiser.denoising_bench import CPU, Watching, bits
from triptych.exchange import Bundle
from triptych.v1.job_pb2 import JobSpec


class PausedModel:
    """A job of it is paused `pause_count` times, before a block that is not a forward's first, for a whole short job.

    `pauses` counts those that the device thread told of; `blocks` counts the blocks of each network that the job itself
    came to.
    """

    def __init__(self, checkpoints: Path, name: str, thread: DeviceThread, pause_count: int) -> None:
        checkpoint = Checkpoint(name, str(checkpoints / name))
        self._encode, self.denoise, self._decode = (
            HostedModel(checkpoint, names, torch.float32, CPU)
            for names in (checkpoint.encode_names, [DENOISE], checkpoint.decode_names)
        )
        self._thread = thread
        self._loop = asyncio.get_running_loop()
        self._left = pause_count
        self.pauses = 0
        self.blocks: dict[str, int] = {}
        # Whether what runs on the device thread is the job itself, not one in its midst.
        self._is_job = False
        self._is_first_block = True
        self._short: DenoiseWork | None = None
        self._made: list[asyncio.Task[Bundle]] = []
        for network_name, network in self.denoise.block(DENOISE).networks.items():
            self._watch(network_name, network)

    async def frames(self, spec: JobSpec) -> np.ndarray[Any, Any]:
        """The job's frames: uint8, frames × height × width × 3. Checks that the short jobs were not harmed either."""
        conditioning = await self._thread.run((0.0, ""), lambda: self._conditioning(spec))
        short = JobSpec()
        short.CopyFrom(spec)
        # From an image, it has two steps, of which one is left.
        short.seed, short.step_count = spec.seed + 1, 2 if spec.extra.fields else 1
        self._short = self._work(short, conditioning)
        alone = await self._run_short()
        latents = await self._run(self._work(spec, conditioning))
        assert all(bits(task.result()) == bits(alone) for task in self._made)
        decode = DecodeWork(self._decode, spec, [*conditioning, latents], None)
        made, _ = await self._thread.run((0.0, ""), lambda: decode.run(self._thread))
        return np.stack([np.asarray(picture) for picture in pictures(made)])

    def _work(self, spec: JobSpec, conditioning: list[Bundle]) -> DenoiseWork:
        return DenoiseWork(self.denoise, spec, 0, conditioning, Watching(), Amendments(spec.step_count))

    def _conditioning(self, spec: JobSpec) -> list[Bundle]:
        inputs, bundles = self._encode.inputs(spec), []
        values: dict[str, tuple[Any, str]] = {}
        for name in self._encode.wanted(inputs):
            drawn = noise(spec, 0) if self._encode.checkpoint.contracts[name].draws else None
            bundle = BlockWork(self._encode, name, inputs, guidance(spec), values, drawn).run(self._thread).bundle
            bundles.append(bundle)
            values.update(from_bundle(bundle, CPU))
        return bundles

    async def _run(self, work: DenoiseWork) -> Bundle:
        def job() -> Bundle:
            self._is_job = True
            try:
                return work.run(self._thread).latents
            finally:
                self._is_job = False

        return await self._thread.run((9.0, ""), job, on_pause=self._told)

    async def _run_short(self) -> Bundle:
        assert self._short is not None
        work = self._short
        return await self._thread.run((1.0, ""), lambda: work.run(self._thread).latents)

    async def _submit_short(self) -> None:
        self._made.append(asyncio.create_task(self._run_short()))
        await asyncio.sleep(0)

    def _told(self, paused: bool) -> None:
        self.pauses += paused

    def _watch(self, name: str, network: torch.nn.Module) -> None:
        self.blocks[name] = 0

        def before_forward(module: torch.nn.Module, inputs: Any) -> None:
            self._is_first_block |= self._is_job

        def before_block() -> None:
            if self._is_job:
                self.blocks[name] += 1
                is_first, self._is_first_block = self._is_first_block, False
                if not is_first and self._left:
                    self._left -= 1
                    asyncio.run_coroutine_threadsafe(self._submit_short(), self._loop).result(20)
            was_job, self._is_job = self._is_job, False
            self._thread.give_way(in_forward=True)
            self._is_job = was_job

        network.register_forward_pre_hook(before_forward)
        assert add_yield_points(network, before_block)
