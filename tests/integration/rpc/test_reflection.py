"""Reflection, as tools of today and older ones ask for it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from tests.integration.rpc.answering import SERVICE
from triptych.rpc import RpcServer, open_channel
from triptych.v1 import router_service_pb2

SERVED = {
    SERVICE,
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
}


@pytest.fixture(params=["v1", "v1alpha"])
async def asked(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """A stream of reflection; the messages of the two versions are the same on the wire."""
    server = RpcServer("127.0.0.1:0", [SERVICE])
    await server.start()
    async with open_channel(server.address) as channel:
        stub: Any = channel
        ask = stub.stream_stream(
            f"/grpc.reflection.{request.param}.ServerReflection/ServerReflectionInfo",
            request_serializer=ServerReflectionRequest.SerializeToString,
            response_deserializer=ServerReflectionResponse.FromString,
        )
        yield ask(timeout=10)
    await server.stop(0)


async def answer(asked: Any, **question: str) -> ServerReflectionResponse:
    await asked.write(ServerReflectionRequest(**question))
    return await asked.read()


async def test_it_names_every_service_and_describes_each(asked: Any) -> None:
    listed = await answer(asked, list_services="")
    assert {service.name for service in listed.list_services_response.service} == SERVED
    for name in SERVED:
        found = await answer(asked, file_containing_symbol=name)
        files = map(FileDescriptorProto.FromString, found.file_descriptor_response.file_descriptor_proto)
        described = {f"{file.package}.{service.name}": service for file in files for service in file.service}
        (method, *_) = described[name].method
        assert method.input_type.startswith(f".{name.rpartition('.')[0]}.")


async def test_it_tells_the_contract_as_it_is(asked: Any) -> None:
    found = await answer(asked, file_by_filename="triptych/v1/router_service.proto")
    described, *_ = found.file_descriptor_response.file_descriptor_proto
    assert described == router_service_pb2.DESCRIPTOR.serialized_pb
    unknown = await answer(asked, file_containing_symbol="triptych.v1.Surprise")
    assert unknown.error_response.error_code == 5
