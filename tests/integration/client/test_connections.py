"""A client that leaves in the middle of a stream leaves nothing behind."""

import gc
from contextlib import aclosing

import psutil
import pytest

from tests.integration.router.bench import Bench, spec
from tests.natsd import NatsServer
from triptych.client import Client
from triptych.exchange import Exchange


@pytest.fixture
def no_collector() -> object:
    """Python's search for cycles is off: what a cycle holds stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def connections() -> int:
    """TCP connections of this process."""
    return len(psutil.Process().net_connections("tcp"))


@pytest.mark.usefixtures("no_collector")
async def test_a_stream_left_early_keeps_no_connection_open(nats_server: NatsServer, exchange: Exchange) -> None:
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router()
        await bench.denoiser.gate.open(1)
        job = await bench.submit(spec())
        await bench.until(job.job_id, "progress")

        async def look_in() -> None:
            async with Client(bench.address) as client, aclosing(client.follow(job.job_id)) as items:
                await anext(items)

        await look_in()
        before = connections()
        for _ in range(20):
            await look_in()
        # The router's ends may take a moment to go.
        assert connections() < before + 10
        await bench.denoiser.gate.open()
        await bench.events(job.job_id)
