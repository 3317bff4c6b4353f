"""Who answers a call: the desk where this router leads, else the standby; asked anew for each call."""

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

from grpc.aio import Server

from services.router.server import RouterServer
from triptych.rpc.typing import Context
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.router_service_pb2_grpc import RouterServiceServicer, add_RouterServiceServicer_to_server

_METHODS = pb.DESCRIPTOR.services_by_name["RouterService"].methods


class Reception:
    """A servicer of every call of the contract."""

    def __init__(self, turn: Callable[[], RouterServer]) -> None:
        self._turn = turn
        for method in _METHODS:
            handler = self._stream(method.name) if method.server_streaming else self._unary(method.name)
            setattr(self, method.name, handler)

    def register(self, server: Server) -> None:
        add_RouterServiceServicer_to_server(cast(RouterServiceServicer, self), server)

    def _unary(self, method: str) -> Any:
        async def call(request: Any, context: Context) -> Any:
            return await getattr(self._turn(), method)(request, context)

        return call

    def _stream(self, method: str) -> Any:
        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            async for response in getattr(self._turn(), method)(request, context):
                yield response

        return call
