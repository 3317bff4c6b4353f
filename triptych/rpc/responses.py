"""The responses of a streaming call, for as long as a block lasts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from grpc.aio import UnaryStreamCall

_Response = TypeVar("_Response")


@asynccontextmanager
async def responses(call: "UnaryStreamCall[Any, _Response]") -> AsyncIterator[AsyncIterator[_Response]]:
    """Iterate over them within the block; a call that is left early is cancelled.

    A call of grpcio and its iterator hold each other. Left at that, they keep the connection open, though its channel
    is closed, until Python looks for such cycles, and it may not for hours.
    """
    messages: Any = aiter(call)
    try:
        yield messages
    finally:
        call.cancel()
        await messages.aclose()
