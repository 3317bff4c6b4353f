"""How a nats-server is started and understood."""

from pathlib import Path

import pytest

from triptych.address import Address
from triptych.exchange.server import command_line, is_ready, is_unwritable, listening_address


@pytest.mark.parametrize(
    ("told", "address"), [("127.0.0.1:41234", Address("127.0.0.1", 41234)), ("[::1]:4222", Address("::1", 4222))]
)
def test_its_address_is_read_from_the_log(told: str, address: Address) -> None:
    line = f"[7] 2026/01/01 10:00:00.1 [INF] Listening for client connections on {told}\n"
    assert listening_address(line) == address
    assert not is_ready(line)


def test_its_state_is_read_from_the_log() -> None:
    ready = "[7] 2026/01/01 10:00:00.1 [INF] Server is ready\n"
    assert is_ready(ready)
    assert listening_address(ready) is None
    assert not is_unwritable(ready)
    broken = (
        "[7] 2026/01/01 10:00:00.1 [ERR] Filestore [EVENTS] Critical write error: write 1.blk: no space left on device"
    )
    assert is_unwritable(broken)


def test_its_memory_is_bounded_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOMEMLIMIT", raising=False)
    assert command_line(Path("store"), clients=4)[:2] == ["/usr/bin/env", "GOMEMLIMIT=128MiB"]
    monkeypatch.setenv("GOMEMLIMIT", "2GiB")
    assert command_line(Path("store"), clients=4)[:2] == ["/usr/bin/env", "GOMEMLIMIT=2GiB"]


def test_without_a_port_the_server_chooses_one() -> None:
    assert command_line(Path("store"))[-4:] == ["--addr", "127.0.0.1", "--port", "-1"]
    assert command_line(Path("store"), host="0.0.0.0", port=4222)[-4:] == ["--addr", "0.0.0.0", "--port", "4222"]
