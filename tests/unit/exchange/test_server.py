"""How a nats-server is started and understood."""

from pathlib import Path

import pytest

from triptych.exchange.server import command_line, is_ready, listening_port


def test_the_port_is_read_from_the_log() -> None:
    assert (
        listening_port("[7] 2026/01/01 10:00:00.1 [INF] Listening for client connections on 127.0.0.1:41234\n") == 41234
    )
    assert listening_port("[7] 2026/01/01 10:00:00.1 [INF] Listening for client connections on [::1]:4222\n") == 4222
    assert listening_port("[7] 2026/01/01 10:00:00.1 [INF] Server is ready\n") is None
    assert is_ready("[7] 2026/01/01 10:00:00.1 [INF] Server is ready\n")


def test_its_memory_is_bounded_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOMEMLIMIT", raising=False)
    assert command_line(Path("store"), clients=4)[:2] == ["/usr/bin/env", "GOMEMLIMIT=128MiB"]
    monkeypatch.setenv("GOMEMLIMIT", "2GiB")
    assert command_line(Path("store"), clients=4)[:2] == ["/usr/bin/env", "GOMEMLIMIT=2GiB"]


def test_without_a_port_the_server_chooses_one() -> None:
    assert command_line(Path("store"))[-4:] == ["--addr", "127.0.0.1", "--port", "-1"]
    assert command_line(Path("store"), host="0.0.0.0", port=4222)[-4:] == ["--addr", "0.0.0.0", "--port", "4222"]
