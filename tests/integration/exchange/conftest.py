"""What several tests of the exchange start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.natsd import NatsServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of this test's own: empty, and it may be killed."""
    server = NatsServer(tmp_path)
    server.start()
    yield server
    server.stop()
