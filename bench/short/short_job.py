"""One short job among others, from its call to its end, and what is done to it meanwhile."""

import grpc
import torch

from bench.denoiser import BenchDenoiser
from bench.short.alone import CPU, Course, Taken
from bench.short.plans import Plan
from bench.short.tally import Made, Tally
from services.denoiser.denoise_work import LATENTS
from services.stage.tensors import from_bundle
from triptych.v1.denoiser_service_pb2 import DenoiseResponse
from triptych.v1.job_pb2 import Amendment, Conditioning


class ShortJob:
    """Its events tell at which step an amendment was taken: with that one the step count changes."""

    def __init__(self, bench: BenchDenoiser, plan: Plan, tally: Tally) -> None:
        self._bench = bench
        self._plan = plan
        self._tally = tally
        self._call = bench.call(plan.rank)
        self._seen = 0
        self._accepted = False
        self._taken: Taken | None = None
        self._latents: torch.Tensor | None = None

    async def run(self, conditioning: list[Conditioning]) -> Made | None:
        """What it made; None if it was cancelled. Raises what the call raises."""
        plan = self._plan
        spec = Course(plan.model, plan.seed, plan.step_count).spec(reproducible=plan.reproducible)
        stream = self._bench.denoise(spec, plan.rank, conditioning, self._call)
        await self._interfere()
        async for event in stream:
            if self._seen == plan.cancel_after:
                stream.cancel()
                return None
            self._seen += 1
            await self._take(event)
            await self._interfere()
        if self._latents is None:
            return None
        if self._accepted:
            self._tally.amended(plan, self._when())
        return Made(plan, Course(plan.model, plan.seed, plan.step_count, self._taken), self._latents)

    async def _interfere(self) -> None:
        """What is planned for after so many events."""
        plan = self._plan
        if self._seen == 1 and plan.later_rank is not None:
            self._call.rank = plan.later_rank
            if await self._amend(None):
                self._tally.outcomes["reranked"] += 1
        if plan.change is not None and self._seen == plan.change.after:
            self._accepted = await self._amend(plan.change.amendment)
            if not self._accepted:
                self._tally.amended(plan, "over")

    async def _amend(self, amendment: Amendment | None) -> bool:
        """Whether the job was not over yet."""
        try:
            await self._bench.amend(self._call, amendment)
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:
                raise
            return False
        return True

    async def _take(self, event: DenoiseResponse) -> None:
        if event.HasField("progress") and self._taken is None:
            step, step_count = event.progress.step, event.progress.step_count
            if step_count != self._plan.step_count:
                self._taken = Taken(step, step_count)
        if event.HasField("latents"):
            exchange = self._bench.host.exchange
            values = from_bundle(await exchange.get(event.latents.data), CPU)
            await exchange.delete(event.latents.data)
            self._latents = values[LATENTS][0]
        for each in event.finished.measurements:
            self._tally.forwards += each.call_count
            self._tally.merged_forwards += each.call_count if each.merged_batch_size else 0

    def _when(self) -> str:
        if self._taken is None:
            return "late" if self._plan.change_kind != "same_steps" else "accepted"
        return "queued" if self._taken.step == 1 else "running"
