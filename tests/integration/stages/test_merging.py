"""Merging through gRPC: outputs that may be merged depend on `seed + index` alone, to rounding; others exactly."""

import asyncio

import pytest
import torch

from services.denoiser.denoise_work import LATENTS
from services.stage.tensors import from_bundle
from tests.integration.stages.stage_calls import StageCalls, job
from triptych.exchange import Exchange
from triptych.v1.denoiser_service_pb2 import DenoiseFinished
from triptych.v1.job_pb2 import JobSpec


async def latents_of(
    calls: StageCalls, exchange: Exchange, spec: JobSpec, rank: float = 1.0
) -> tuple[dict[int, torch.Tensor], DenoiseFinished]:
    """The latents of each output, and what the last event says."""
    made: dict[int, torch.Tensor] = {}
    async for event in calls.denoise(spec, await calls.encode(spec), rank):
        if event.HasField("latents"):
            values = from_bundle(await exchange.get(event.latents.data), torch.device("cpu"))
            made[event.latents.output_index] = values[LATENTS][0]
    return made, event.finished


@pytest.mark.parametrize("model", ["sd3", "flux"])
async def test_an_output_among_others_is_the_single_picture_of_its_seed(
    calls: StageCalls, exchange: Exchange, model: str
) -> None:
    single, _ = await latents_of(calls, exchange, job(model, seed=9))
    exact, _ = await latents_of(calls, exchange, job(model, output_count=4))
    # Steps enough to find out whether merging pays, and, if it does, to do it.
    loose, finished = await latents_of(calls, exchange, job(model, output_count=4, reproducible=False))
    assert torch.equal(exact[2], single[0])
    assert sorted(loose) == [0, 1, 2, 3]
    torch.testing.assert_close(loose[2], single[0], rtol=1e-3, atol=1e-3)
    assert sum(each.call_count for each in finished.measurements) == 4 * 3 * (2 if model == "sd3" else 1)


async def test_a_reproducible_job_is_exact_beside_jobs_that_merge(calls: StageCalls, exchange: Exchange) -> None:
    alone, _ = await latents_of(calls, exchange, job("sd3", step_count=10))
    beside = await asyncio.gather(
        latents_of(calls, exchange, job("sd3", step_count=10), rank=2.0),
        latents_of(calls, exchange, job("sd3", step_count=10, allow_merging=True), rank=1.0),
        latents_of(calls, exchange, job("sd3", step_count=10, seed=8, reproducible=False), rank=3.0),
    )
    assert torch.equal(beside[0][0][0], alone[0])
    torch.testing.assert_close(beside[1][0][0], alone[0], rtol=1e-3, atol=1e-3)
