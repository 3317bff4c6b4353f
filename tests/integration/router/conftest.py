"""A router in this process, its NATS and its peers."""

import io
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.integration.router.bench import Bench
from tests.natsd import NatsServer
from triptych.exchange import Exchange


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server for each test: a router takes up every job that it finds there."""
    server = NatsServer(tmp_path / "nats")
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def bench(nats_server: NatsServer, exchange: Exchange) -> AsyncIterator[Bench]:
    """One router and one peer of each stage, ready to take jobs."""
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router()
        yield bench


@pytest.fixture
def red_png() -> bytes:
    """A small picture."""
    file = io.BytesIO()
    Image.new("RGB", (16, 16), "red").save(file, "PNG")
    return file.getvalue()
