"""Requests that are none: answered in the catalog's words, as all bad input is."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import grpc
import pytest

from bench.fuzz_messages import deep, wire_field
from triptych.errors import Reason, from_rpc_error
from triptych.rpc import RpcServer, open_channel
from triptych.rpc.channel import MESSAGE_BYTES, METADATA_BYTES
from triptych.rpc.typing import Context
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.router_service_pb2_grpc import RouterServiceServicer, add_RouterServiceServicer_to_server

SERVICE = "triptych.v1.RouterService"


class Answering(RouterServiceServicer):
    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Context) -> pb.SubmitJobResponse:
        return pb.SubmitJobResponse()

    async def GenerateMedia(
        self, request: pb.GenerateMediaRequest, context: Context
    ) -> AsyncGenerator[pb.GenerateMediaResponse, None]:
        yield pb.GenerateMediaResponse()


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    server = RpcServer("127.0.0.1:0", [SERVICE])
    await server.start(lambda server: add_RouterServiceServicer_to_server(Answering(), server))
    async with open_channel(server.address) as channel:
        yield channel
    await server.stop(0)


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
