"""Requests that are none: answered in the catalog's words, as all bad input is."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import grpc
import pytest

from bench.fuzz_messages import deep, wire_field
from tests.cycles import left_in_cycles
from tests.integration.rpc.answering import SERVICE, Answering
from triptych.errors import Reason, TriptychError, from_rpc_error
from triptych.rpc import RpcServer, open_channel
from triptych.rpc.channel import MESSAGE_BYTES, METADATA_BYTES
from triptych.rpc.guard import Guard, everyone
from triptych.rpc.translation import MAX_OPEN_STREAMS, ErrorTranslation
from triptych.rpc.typing import Context
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.router_service_pb2_grpc import add_RouterServiceServicer_to_server


@pytest.fixture
async def address() -> AsyncIterator[str]:
    server = RpcServer("127.0.0.1:0", [SERVICE])
    await server.start(lambda server: add_RouterServiceServicer_to_server(Answering(), server))
    yield server.address
    await server.stop(0)


@pytest.fixture
async def channel(address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with open_channel(address) as channel:
        yield channel


UNPARSABLE = {"noise": b"\xff\xff", "a surrogate": wire_field(2, b"\xed\xa0\x80"), "too deep": deep(200)}


@pytest.mark.parametrize("data", UNPARSABLE.values(), ids=UNPARSABLE.keys())
@pytest.mark.parametrize("method", ["SubmitJob", "GenerateMedia"])
async def test_what_cannot_be_parsed_is_bad_input(channel: grpc.aio.Channel, method: str, data: bytes) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await answer(channel, method, data)
    error = from_rpc_error(caught.value)
    assert (caught.value.code(), error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, Reason.INVALID_FIELD)
    assert error.violations[0].field == "request"


@pytest.mark.parametrize("method", ["SubmitJob", "GenerateMedia"])
async def test_others_are_parsed(channel: grpc.aio.Channel, method: str) -> None:
    assert await answer(channel, method, deep(2)) == b""


async def test_headers_and_messages_are_bounded(channel: grpc.aio.Channel) -> None:
    call: Any = channel.unary_unary(f"/{SERVICE}/SubmitJob")
    for request, metadata in ((b"", [("x", "y" * METADATA_BYTES)]), (bytes(MESSAGE_BYTES + 1), [])):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(request, metadata=metadata)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await call(b"") == b""


def unknown(method: str, context: Context) -> None:
    """A guard that knows nobody."""
    raise TriptychError(Reason.UNAUTHENTICATED, "Nobody may call.")


async def nothing() -> AsyncGenerator[bytes, None]:
    """A request that never comes, and is never over."""
    await asyncio.Event().wait()
    yield b""


@pytest.mark.parametrize("method", ["SubmitJob", "GenerateMedia"])
@pytest.mark.parametrize(
    ("guard", "code"),
    [(unknown, grpc.StatusCode.UNAUTHENTICATED), (everyone, grpc.StatusCode.INVALID_ARGUMENT)],
    ids=["who is not known", "who is known"],
)
async def test_a_call_without_a_request_is_not_held_open(guard: Guard, code: grpc.StatusCode, method: str) -> None:
    """Who is not known is not waited for at all."""
    waits_s = 0.05 if guard is everyone else 3600.0
    server = grpc.aio.server(interceptors=[ErrorTranslation(guard, waits_s)])
    add_RouterServiceServicer_to_server(Answering(), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    async with open_channel(address) as channel:
        stub: Any = channel
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.stream_unary(f"/{SERVICE}/{method}")(nothing(), timeout=10)
        assert caught.value.code() is code
    await server.stop(0)


async def test_health_and_reflection_leave_calls_for_others(channel: grpc.aio.Channel) -> None:
    stub: Any = channel
    open_streams = []
    for path in ("/grpc.health.v1.Health/Watch", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"):
        for _ in range(MAX_OPEN_STREAMS // 2):
            stream = stub.stream_stream(path)()
            await stream.write(wire_field(7, b"") if "reflection" in path else b"")
            assert await stream.read() is not grpc.aio.EOF
            open_streams.append(stream)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.unary_stream("/grpc.health.v1.Health/Watch")(b"").read()
    assert from_rpc_error(caught.value).reason is Reason.TOO_MANY_STREAMS
    assert await stub.unary_unary("/grpc.health.v1.Health/Check")(b"")
    assert await answer(channel, "SubmitJob", b"") == b""
    for stream in open_streams:
        stream.cancel()


async def test_pings_are_bounded(channel: grpc.aio.Channel, address: str) -> None:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    ping = bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + b"8 bytes."
    writer.write(ping * 200)
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(10):
            answered = await reader.read()
            assert b"too_many_pings" in answered
    writer.close()
    assert await answer(channel, "SubmitJob", b"") == b""


class Failing(Answering):
    async def GenerateMedia(
        self, request: pb.GenerateMediaRequest, context: Context
    ) -> AsyncGenerator[pb.GenerateMediaResponse, None]:
        raise TriptychError(Reason.OVERLOADED, "not now")
        yield pb.GenerateMediaResponse()


async def test_a_call_that_fails_keeps_nothing() -> None:
    server = RpcServer("127.0.0.1:0", [SERVICE])
    await server.start(lambda server: add_RouterServiceServicer_to_server(Failing(), server))

    async def fail() -> None:
        call: Any = channel.unary_stream(f"/{SERVICE}/GenerateMedia")
        with contextlib.suppress(grpc.aio.AioRpcError):
            assert [answer async for answer in call(b"")] == []

    async with open_channel(server.address) as channel:
        await fail()
        with left_in_cycles() as left:
            for _ in range(3):
                await fail()
    await server.stop(0)
    assert not [
        each for each in left if isinstance(each, TriptychError | grpc.aio.AbortError | pb.GenerateMediaRequest)
    ]


async def test_a_connection_without_calls_is_closed() -> None:
    server = RpcServer("127.0.0.1:0", [SERVICE], idle_s=0.2)
    await server.start(lambda server: add_RouterServiceServicer_to_server(Answering(), server))
    async with open_channel(server.address) as channel:
        for _ in range(2):  # for the next call there is a new one
            assert await answer(channel, "SubmitJob", b"") == b""
            async with asyncio.timeout(10):
                while (state := channel.get_state()) is not grpc.ChannelConnectivity.IDLE:
                    await channel.wait_for_state_change(state)
    await server.stop(0)


async def test_calls_at_once_are_bounded() -> None:
    server = RpcServer("127.0.0.1:0", [SERVICE], 1)
    await server.start(lambda server: add_RouterServiceServicer_to_server(Answering(), server))
    async with open_channel(server.address) as channel:
        health: Any = channel.unary_stream("/grpc.health.v1.Health/Watch")
        watching = health(b"")
        await watching.read()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await answer(channel, "SubmitJob", b"")
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        watching.cancel()
    await server.stop(0)


async def answer(channel: grpc.aio.Channel, method: str, data: bytes) -> bytes:
    """The first message of the answer to these bytes."""
    stub: Any = channel
    if method == "SubmitJob":
        return bytes(await stub.unary_unary(f"/{SERVICE}/{method}")(data))
    return bytes(await stub.unary_stream(f"/{SERVICE}/{method}")(data).read())
