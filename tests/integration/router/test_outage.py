"""NATS goes away under a router, and comes back."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.integration.router.bench import CONFIG, Bench, kinds, spec
from tests.natsd import NatsServer
from triptych.errors import Reason
from triptych.exchange import Exchange
from triptych.v1 import router_service_pb2 as pb


@pytest.fixture
async def bench(nats_server: NatsServer, exchange: Exchange) -> AsyncIterator[Bench]:
    """A router that waits for NATS half a second, not ten, and never misses a heartbeat."""
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        config = replace(CONFIG, worker_timeout_s=60.0, exchange=replace(CONFIG.exchange, answer_timeout_s=0.5))
        await bench.start_router(config)
        yield bench


async def test_a_running_job_goes_on_when_it_is_back(bench: Bench, nats_server: NatsServer) -> None:
    await bench.denoiser.gate.open(2)
    job = await bench.submit()
    await bench.denoiser.gate.reached(3)
    watching = asyncio.create_task(bench.events(job.job_id))
    nats_server.kill()
    await bench.unready()
    await bench.denoiser.gate.open()
    nats_server.start()
    events = await watching
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert kinds(events)[-1] == "succeeded"
    assert bench.denoiser.steps[job.job_id] == 4


async def test_a_submit_without_an_answer_leaves_one_job_to_who_repeats_it(
    bench: Bench, nats_server: NatsServer
) -> None:
    nats_server.kill()
    await bench.unready()
    error = await bench.refusal(spec(), "patient")
    assert error.reason is Reason.EXCHANGE_UNAVAILABLE
    anonymous = await bench.refusal(spec(prompt="nobody's"))
    assert anonymous.reason is Reason.EXCHANGE_UNAVAILABLE
    nats_server.start()
    async with asyncio.timeout(10):
        while (again := await bench.try_submit(spec(), "patient")) is None:  # noqa: ASYNC110 - a pause between calls
            await asyncio.sleep(0.05)
    assert kinds(await bench.events(again.job_id))[-1] == "succeeded"
    for job in (await bench.stub.ListJobs(pb.ListJobsRequest())).jobs:
        if job.job_id != again.job_id:
            assert kinds(await bench.events(job.job_id))[-1] == "cancelled"
            assert job.spec.prompt == "nobody's"
