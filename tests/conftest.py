"""Fixtures that several folders of tests use."""

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.natsd import NatsServer
from tests.suite import RunningSuite, running_suite
from triptych.exchange import Exchange, ExchangeConfig

# Of a run in a shell's background SIGINT is ignored, and so it would be by every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no failure.
settings.register_profile("triptych", deadline=None)
settings.load_profile("triptych")


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


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSuite]:
    """A whole suite, one worker a stage, shared by all tests: leave it as ready as you found it."""
    with running_suite(tmp_path_factory.mktemp("suite")) as suite:
        yield suite


@pytest.fixture(scope="session")
def tiny_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every tiny checkpoint, and a catalog of them."""
    # Here, not above: tests of the exchange and of the router do without torch.
    from tests.tiny_checkpoints import make_tiny_checkpoints, write_catalog

    folder = tmp_path_factory.mktemp("checkpoints")
    make_tiny_checkpoints(folder)
    write_catalog(folder)
    return folder
