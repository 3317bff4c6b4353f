"""Runs short jobs, so many at once, and does to each what is planned for it."""

import asyncio
from typing import Any

import grpc
import torch

from bench.denoiser import BenchDenoiser
from bench.short.alone import CPU, Alone, Course
from bench.short.plans import MODELS, Plan
from bench.short.short_job import ShortJob
from bench.short.tally import Made, Tally
from services.stage.tensors import from_bundle, to_bundle
from triptych.v1.job_pb2 import Conditioning

AT_ONCE = 8
# A cancelled call's place is free when the denoiser has noticed.
PLACES = 2 * AT_ONCE
HANGS_S = 60.0


class Runner:
    """Runs plans against one denoiser."""

    def __init__(self, bench: BenchDenoiser) -> None:
        self.tally = Tally()
        self.alone = Alone(bench)
        self._bench = bench
        # With it a job has no finite latents, which is seen when it has run to its end.
        self._broken: dict[str, list[Conditioning]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def learn(self, plans: list[Plan]) -> None:
        """Make every job that there is once, alone and as it was asked for; and what makes a job fail."""
        for model in MODELS:
            self._broken[model] = [await self._break(entry) for entry in self._bench.encoded[model]]
        for plan in plans:
            await self.alone.latents(Course(plan.model, plan.seed, plan.step_count))

    async def run(self, plans: list[Plan]) -> None:
        """Run them, then compare each with the same job alone."""
        for made in await asyncio.gather(*(self._run(plan) for plan in plans)):
            if made is not None:
                self.tally.compare(made, await self.alone.latents(made.course))
        self.alone.forget()

    async def _run(self, plan: Plan) -> Made | None:
        """What it made; None if it did not come to its end."""
        async with self._slots:
            job, made = ShortJob(self._bench, plan, self.tally), None
            try:
                made = await asyncio.wait_for(job.run(self._conditioning(plan)), HANGS_S)
                outcome = "finished" if made is not None else "cancelled"
            except TimeoutError:
                outcome = "hung"
            except grpc.aio.AioRpcError as error:
                outcome = "failed" if plan.fails else f"failed: {error.details()}"
            self.tally.outcomes[outcome] += 1
            return made

    def _conditioning(self, plan: Plan) -> list[Conditioning]:
        return (self._broken if plan.fails else self._bench.encoded)[plan.model]

    async def _break(self, entry: Conditioning) -> Conditioning:
        exchange = self._bench.host.exchange
        values = from_bundle(await exchange.get(entry.data), CPU)
        broken = {name: (_not_a_number(value), kind) for name, (value, kind) in values.items()}
        return Conditioning(
            block=entry.block, key=entry.key, data=await exchange.put("conditioning", to_bundle(broken))
        )


def _not_a_number(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return torch.full_like(value, torch.nan) if is_float else value
