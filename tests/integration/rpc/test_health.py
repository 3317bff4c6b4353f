"""The health command that containers run, against real servers."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import pytest

from triptych.rpc import RpcServer
from triptych.rpc.health import reachable


@pytest.fixture
async def server() -> AsyncIterator[RpcServer]:
    server = RpcServer("127.0.0.1:0", ["triptych.v1.RouterService"])
    await server.start()
    yield server
    await server.stop(0)


async def ask(*arguments: str, **environment: str) -> tuple[int, str]:
    """Run the command; exit status and what it said."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "triptych.rpc.health", *arguments),
        env={name: value for name, value in os.environ.items() if name != "TRIPTYCH_LISTEN"} | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def test_a_serving_server_is_healthy(server: RpcServer) -> None:
    await server.set_serving(True)
    assert await ask(server.address) == (0, f"{server.address}: SERVING\n")


async def test_a_server_that_starts_or_drains_is_not(server: RpcServer) -> None:
    assert await ask(server.address) == (1, f"{server.address}: NOT_SERVING\n")


async def test_nobody_there_is_said_in_one_line(server: RpcServer) -> None:
    await server.stop(0)
    status, said = await ask(server.address)
    assert status == 1
    assert said.startswith(f"{server.address}: UNAVAILABLE: ")
    assert said.count("\n") == 1


async def test_it_asks_where_its_own_container_listens(server: RpcServer) -> None:
    await server.set_serving(True)
    port = server.address.rpartition(":")[2]
    assert await ask(TRIPTYCH_LISTEN=f"0.0.0.0:{port}") == (0, f"127.0.0.1:{port}: SERVING\n")


async def test_without_any_address_it_says_how_it_is_called() -> None:
    status, said = await ask()
    assert status == 2
    assert "usage:" in said
    status, said = await ask(TRIPTYCH_LISTEN="::1:7461")
    assert status == 2
    assert "brackets" in said


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("0.0.0.0:7461", "127.0.0.1:7461"),
        ("[::]:7461", "[::1]:7461"),
        (":7461", "127.0.0.1:7461"),
        ("router:7460", "router:7460"),
    ],
)
def test_everywhere_includes_here(listen: str, address: str) -> None:
    assert reachable(listen) == address
