"""Estimates: learnt from what workers measure, and still known to the next router."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from services.router.core.config import PoolConfig, SchedulerConfig
from tests.integration.router.bench import CONFIG, Bench, spec
from tests.natsd import NatsServer
from triptych.exchange import Exchange
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import STAGE_DENOISE, Estimate, JobSpec


@pytest.fixture
async def slow(nats_server: NatsServer, exchange: Exchange) -> AsyncIterator[Bench]:
    """A router whose denoiser says that each job took eight seconds."""
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers(device_s=8.0)
        await bench.start_router()
        yield bench


async def estimate(bench: Bench, of: JobSpec | None = None) -> Estimate:
    answer: pb.EstimateJobResponse = await bench.stub.EstimateJob(pb.EstimateJobRequest(spec=of or spec()))
    return answer.estimate


async def saved(bench: Bench) -> dict[str, object]:
    entry = await (await bench.exchange.bucket("jobs")).get("estimates")
    state: dict[str, object] = json.loads(entry.value or b"")
    return state


async def learn(bench: Bench, count: int = 10) -> None:
    for index in range(count):
        job = await bench.submit(spec(seed=index))
        await bench.until(job.job_id, "succeeded")


async def test_what_was_learnt_survives_the_router(slow: Bench) -> None:
    before = await estimate(slow)
    await learn(slow)
    learnt = await estimate(slow)
    assert before.denoise.ToMilliseconds() < 500 < 5_000 < learnt.denoise.ToMilliseconds() < 9_000
    fleet: pb.GetFleetResponse = await slow.stub.GetFleet(pb.GetFleetRequest())
    (denoise,) = fleet.estimate_errors  # the other stages take no time here
    assert (denoise.model, denoise.stage, denoise.device) == ("shapes", STAGE_DENOISE, "none")
    # The first was said to be far shorter; the later ones as long as they were.
    assert (denoise.sample_count, denoise.bias < 0.0, denoise.median_relative_error < 0.5) == (10, True, True)
    await slow.stop_router()
    await slow.start_router()
    again = await estimate(slow)
    assert again.denoise.ToMilliseconds() == pytest.approx(learnt.denoise.ToMilliseconds(), rel=0.01)


async def test_a_worker_that_becomes_slow_comes_after_the_others(nats_server: NatsServer, exchange: Exchange) -> None:
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers(denoisers=2, device_s=8.0)
        await bench.start_router(
            replace(CONFIG, scheduler=SchedulerConfig(pools=(PoolConfig("all", max_backlog_s=1e6),)))
        )
        await learn(bench)
        slow, other = sorted(bench.denoisers, key=lambda peer: peer.calls == [] or peer.calls[-1].spec.seed != 9)
        slow.device_s *= 3.0
        await learn(bench)
        before = len(slow.calls)
        await learn(bench, 3)
        assert len(slow.calls) == before
        fleet: pb.GetFleetResponse = await bench.stub.GetFleet(pb.GetFleetRequest())
        paces = {worker.worker_id: worker.pace for worker in fleet.workers}
        assert paces[slow.worker_id] > paces[other.worker_id] > 0.0


async def test_a_state_that_makes_no_sense_is_left_aside_and_replaced(slow: Bench) -> None:
    await slow.stop_router()
    await (await slow.exchange.bucket("jobs")).put("estimates", b'{"version":1,"curves":"nonsense"}')
    await slow.start_router()
    assert (await estimate(slow)).denoise.ToMilliseconds() < 500
    await learn(slow)
    await slow.stop_router()
    assert (await saved(slow))["curves"]


async def test_a_router_of_an_older_term_does_not_overwrite_what_the_newer_one_saved(slow: Bench) -> None:
    bucket = await slow.exchange.bucket("jobs")
    watcher = await bucket.watch("estimates")
    async with asyncio.timeout(10):
        async for entry in watcher:
            if entry is not None:
                break
    await watcher.stop()
    state = await saved(slow) | {"epoch": 1000}
    await bucket.put("estimates", json.dumps(state).encode())
    await learn(slow)
    await slow.stop_router()
    assert await saved(slow) == state
