"""A router in this process, its NATS and its peers."""

from collections.abc import AsyncIterator

import pytest

from tests.integration.router.bench import Bench
from tests.natsd import NatsServer
from triptych.exchange import Exchange


@pytest.fixture
async def bench(nats_server: NatsServer, exchange: Exchange) -> AsyncIterator[Bench]:
    """One router and one peer of each stage, ready to take jobs."""
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router()
        yield bench
