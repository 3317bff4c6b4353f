"""The one place where exceptions become gRPC statuses."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, cast

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from triptych.errors import Reason, TriptychError, Violation, invalid, to_status
from triptych.rpc.guard import Guard, everyone
from triptych.rpc.typing import Context, Handler

log = structlog.get_logger()


class ErrorTranslation(grpc.aio.ServerInterceptor):
    """Turns a handler's exception into its status: the catalog's, or INTERNAL, logged and not leaked.

    The guard is asked first: of a call that it refuses not even the request is parsed. Health and reflection are not
    ours, and are for everyone: they tell what every orchestrator must, and everyone may, know.
    """

    def __init__(self, guard: Guard = everyone) -> None:
        self._guard = guard

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wrap unary-unary and unary-stream handlers; the contract has no others.

        They parse their requests themselves, so that one that cannot be parsed is answered as all bad input is.
        """
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith("/triptych."):
            return handler
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                _stream(cast(Any, handler.unary_stream), _parser(handler), self._guard, method),
                response_serializer=handler.response_serializer,
            )
        if handler.unary_unary is None:
            return handler
        return grpc.unary_unary_rpc_method_handler(
            _unary(handler.unary_unary, _parser(handler), self._guard, method),
            response_serializer=handler.response_serializer,
        )


def _parser(handler: Handler) -> Callable[[bytes], Any]:
    deserialize = handler.request_deserializer or (lambda data: data)

    def parse(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError as error:
            why = "cannot be parsed: text that is not UTF-8, nesting that is too deep, or no such message"
            raise invalid(Violation("request", why)) from error

    return parse


def _unary(
    stock: Callable[..., Awaitable[Any]], parse: Callable[[bytes], Any], guard: Guard, method: str
) -> Callable[..., Awaitable[Any]]:
    async def call(request: bytes, context: Context) -> Any:
        try:
            guard(method, context)
            return await stock(parse(request), context)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge of the process
            await _abort(context, error, method)

    return call


def _stream(
    stock: Callable[..., AsyncIterator[Any]], parse: Callable[[bytes], Any], guard: Guard, method: str
) -> Callable[..., AsyncIterator[Any]]:
    async def call(request: bytes, context: Context) -> AsyncIterator[Any]:
        try:
            guard(method, context)
            async for response in stock(parse(request), context):
                yield response
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:  # noqa: BLE001 - the edge of the process
            await _abort(context, error, method)

    return call


async def _abort(context: Context, error: Exception, method: str) -> NoReturn:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, TriptychError):
        log.exception("call_failed", method=method)
        error = TriptychError(Reason.INTERNAL, "An internal error; the service's log has it.")
    await context.abort_with_status(rpc_status.to_status(to_status(error)))
    raise AssertionError("abort_with_status returned")
