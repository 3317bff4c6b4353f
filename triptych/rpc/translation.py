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
from triptych.tracebacks import clear_frames

log = structlog.get_logger()


# A request is small, and its caller has it before it calls.
REQUEST_TIMEOUT_S = 30.0
# Watches of health and streams of reflection, which need no token: so many at once, and calls are left for the others.
MAX_OPEN_STREAMS = 64

_Requests = AsyncIterator[bytes]


class ErrorTranslation(grpc.aio.ServerInterceptor):
    """Turns a handler's exception into its status: the catalog's, or INTERNAL, logged and not leaked.

    The guard is asked first: a call that it refuses ends before its request has come, and one whose request does not
    come in `request_timeout_s` ends too, so that nobody holds calls open with nothing. Health and reflection are not
    ours, and are for everyone, within bounds: they tell what every orchestrator must, and everyone may, know.
    """

    def __init__(self, guard: Guard = everyone, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._guard = guard
        self._request_timeout_s = request_timeout_s
        self._open_streams = 0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wrap unary-unary and unary-stream handlers; the contract has no others.

        To gRPC they become handlers of streams of requests, which it calls before there is one. They read the one
        request and parse it themselves, so that one that cannot be parsed is answered as all bad input is.
        """
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None:
            return None
        ours = method.startswith("/triptych.")
        if not ours and handler.unary_unary is None:
            return self._bounded(handler)
        if handler.unary_stream is not None:
            return grpc.stream_stream_rpc_method_handler(
                self._stream(cast(Any, handler.unary_stream), _parser(handler), method),
                response_serializer=handler.response_serializer,
            )
        if handler.unary_unary is None:
            return handler
        guard = self._guard if ours else everyone
        return grpc.stream_unary_rpc_method_handler(
            self._unary(cast(Any, handler.unary_unary), _parser(handler), guard, method),
            response_serializer=handler.response_serializer,
        )

    def _unary(
        self, stock: Callable[..., Awaitable[Any]], parse: Callable[[bytes], Any], guard: Guard, method: str
    ) -> Any:
        async def call(requests: _Requests, context: Context) -> Any:
            try:
                guard(method, context)
                return await stock(parse(await self._request(requests)), context)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - the edge of the process
                await _abort(context, error, method)
            finally:
                # The call keeps what ends it, and the traceback of that this frame: the two would keep each other.
                del requests, context

        return call

    def _stream(self, stock: Callable[..., AsyncIterator[Any]], parse: Callable[[bytes], Any], method: str) -> Any:
        async def call(requests: _Requests, context: Context) -> AsyncIterator[Any]:
            try:
                self._guard(method, context)
                async for response in stock(parse(await self._request(requests)), context):
                    yield response
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except Exception as error:  # noqa: BLE001 - the edge of the process
                await _abort(context, error, method)
            finally:
                del requests, context

        return call

    def _bounded(self, handler: Handler) -> Handler:
        """A stream of health or reflection, of which there are so many at once."""
        one, many, parse = cast(Any, handler.unary_stream), cast(Any, handler.stream_stream), _parser(handler)

        async def call(requests: _Requests, context: Context) -> None:
            if self._open_streams >= MAX_OPEN_STREAMS:
                why = f"{MAX_OPEN_STREAMS} streams of health and reflection are open; try again."
                await _abort(context, TriptychError(Reason.TOO_MANY_STREAMS, why, retry_after_s=1.0), "")
            self._open_streams += 1
            try:
                if many is None:
                    await one(parse(await self._request(requests)), context)
                    return
                async for response in many((parse(request) async for request in requests), context):
                    await context.write(response)
            except TriptychError as error:
                await _abort(context, error, "")
            finally:
                self._open_streams -= 1

        return grpc.stream_stream_rpc_method_handler(call, response_serializer=handler.response_serializer)

    async def _request(self, requests: _Requests) -> bytes:
        """The one request of a call. Raises INVALID_FIELD if none comes."""
        try:
            async with asyncio.timeout(self._request_timeout_s):
                return await anext(requests)
        except (TimeoutError, StopAsyncIteration) as error:
            why = f"the call had none within {self._request_timeout_s:g} s"
            raise invalid(Violation("request", why)) from error


def _parser(handler: Handler) -> Callable[[bytes], Any]:
    deserialize = handler.request_deserializer or (lambda data: data)

    def parse(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError as error:
            why = "cannot be parsed: text that is not UTF-8, nesting that is too deep, or no such message"
            raise invalid(Violation("request", why)) from error

    return parse


async def _abort(context: Context, error: Exception, method: str) -> NoReturn:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, TriptychError):
        log.exception("call_failed", method=method)
        error = TriptychError(Reason.INTERNAL, "An internal error; the service's log has it.")
    clear_frames(error)
    try:
        await context.abort_with_status(rpc_status.to_status(to_status(error)))
    finally:
        del context
    raise AssertionError("abort_with_status returned")
