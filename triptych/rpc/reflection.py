"""What a server tells of its services: `grpc.reflection.v1`, and `v1alpha` for older tools.

The two differ in their names alone, and grpcio-reflection has the older one: v1 is made of that.
"""

from collections.abc import Iterable

import grpc
from google.protobuf import descriptor_pool, text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection, reflection_pb2

SERVICE_NAMES = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)


def add_reflection(services: Iterable[str], server: grpc.aio.Server) -> None:
    """Have the server answer for these services, by their full names, and for reflection itself."""
    names = [*services, *SERVICE_NAMES]
    reflection.enable_server_reflection(names, server)
    info = grpc.stream_stream_rpc_method_handler(
        reflection.aio.ReflectionServicer(names).ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    handler = grpc.method_handlers_generic_handler(SERVICE_NAMES[0], {"ServerReflectionInfo": info})
    server.add_generic_rpc_handlers((handler,))


def _describe_v1() -> None:
    """Add the description of v1 to those that servers tell of."""
    pool, older = descriptor_pool.Default(), FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(older)
    text = text_format.MessageToString(older).replace("grpc.reflection.v1alpha", "grpc.reflection.v1")
    described = text_format.Parse(text, FileDescriptorProto())
    described.name = "grpc/reflection/v1/reflection.proto"
    pool.AddSerializedFile(described.SerializeToString())


_describe_v1()
