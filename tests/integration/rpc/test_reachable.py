"""What a server that listens everywhere tells the others, asked of this machine's kernel."""

import asyncio

import pytest

from tests.ipv6 import needs_ipv6
from triptych.rpc import RpcServer, reachable_address
from triptych.rpc.health import check


@pytest.mark.parametrize(
    ("listening", "nats_url", "address"),
    [
        ("0.0.0.0:7461", "nats://127.0.0.1:4222", "127.0.0.1:7461"),
        (":7461", "127.0.0.1", "127.0.0.1:7461"),
        ("[::]:7461", "nats://127.0.0.1:4222", "127.0.0.1:7461"),
        pytest.param("[::]:7461", "nats://[::1]:4222", "[::1]:7461", marks=needs_ipv6),
        pytest.param(":7461", "tls://user:word@[::1]", "[::1]:7461", marks=needs_ipv6),
        ("[2001:db8::7]:7461", "nats://127.0.0.1:4222", "[2001:db8::7]:7461"),
        ("worker.example:7461", "nats://[::1]:4222", "worker.example:7461"),
    ],
)
def test_where_it_is_reached(listening: str, nats_url: str, address: str) -> None:
    assert reachable_address(listening, nats_url) == address


@pytest.mark.parametrize(
    ("listening", "nats_url"), [("0.0.0.0:7461", "nats://[::1]:4222"), ("[::]:7461", "nats://nobody.invalid:4222")]
)
def test_where_it_cannot_be_told_it_has_to_be_named(listening: str, nats_url: str) -> None:
    with pytest.raises(OSError, match="set advertise"):
        reachable_address(listening, nats_url)


@needs_ipv6
@pytest.mark.parametrize("listen", ["[::1]:0", "[::]:0"])
async def test_a_server_is_found_by_ipv6(listen: str) -> None:
    server = RpcServer(listen, ["triptych.v1.RouterService"])
    await server.start()
    await server.set_serving(True)
    assert server.address.startswith(listen.removesuffix("0"))
    assert await asyncio.to_thread(check, reachable_address(server.address, "nats://[::1]:4222")) == "SERVING"
    await server.stop(0)
