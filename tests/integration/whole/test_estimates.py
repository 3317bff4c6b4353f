"""Estimates of real models on this machine: what workers tell of them, and what a few jobs teach."""

from statistics import median

import pytest

from tests.integration.whole.jobs import events_of, job
from tests.suite import RunningSuite
from triptych.client import Client
from triptych.exchange import Exchange
from triptych.v1.worker_pb2 import WorkerHeartbeat

SIDES = (64, 192)
STEPS = 6


async def denoise_s(client: Client, side: int, seed: int) -> float:
    submitted = await client.submit(job("sdxl", width=side, height=side, step_count=STEPS, seed=seed))
    await events_of(client, submitted.job_id)
    return (await client.job(submitted.job_id)).denoise_time.ToNanoseconds() / 1e9


async def estimated_s(client: Client, side: int, steps: int = STEPS) -> float:
    told = await client.estimate(job("sdxl", width=side, height=side, step_count=steps))
    return told.estimate.denoise.ToNanoseconds() / 1e9


async def test_after_some_jobs_estimates_are_near_what_jobs_take(client: Client) -> None:
    took: dict[int, list[float]] = {side: [] for side in SIDES}
    for number in range(5):
        for side in SIDES:
            took[side].append(await denoise_s(client, side, number))
    for side in SIDES:
        assert 0.5 < await estimated_s(client, side) / median(took[side]) < 2.0
        # Twice the steps, twice the time.
        once_s, twice_s = await estimated_s(client, side), await estimated_s(client, side, 2 * STEPS)
        assert twice_s == pytest.approx(2 * once_s, rel=0.05)


async def test_a_denoiser_tells_what_it_measured_and_counted(tiny_suite: RunningSuite) -> None:
    async with Exchange(tiny_suite.exchange) as exchange:
        heard = await exchange.control.subscribe("triptych.v1.heartbeat.denoise.*")
        beat = WorkerHeartbeat.FromString((await heard.next_msg(timeout=10)).data)
    assert beat.device_tflops > 0
    assert all(model.load_time.ToNanoseconds() > 0 for model in beat.models)
    # The others' costs are in the catalog.
    counts = {model.profile.name: len(model.forward_costs) for model in beat.models if model.forward_costs}
    assert counts == {"flux": 3}
