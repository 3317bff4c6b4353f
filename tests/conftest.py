"""Fixtures that several folders of tests use."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.natsd import NatsServer
from triptych.exchange import Exchange, ExchangeConfig


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A real nats-server with a store of its own, shared by a module's tests."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def exchange(nats_server: NatsServer) -> AsyncIterator[Exchange]:
    """An open exchange on `nats_server`, with the default limits."""
    async with Exchange(ExchangeConfig(url=nats_server.url)) as exchange:
        yield exchange
