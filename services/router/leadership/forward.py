"""Sends calls on to the router that leads, in their caller's name, and once more to the next one if it goes."""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import grpc
import structlog

from services.router.leadership.lease import Leadership
from services.router.leadership.peer_links import PeerLinks
from triptych.endings import is_terminal
from triptych.errors import Reason, TriptychError, from_rpc_error
from triptych.exchange import DiskFull
from triptych.rpc import Credentials
from triptych.rpc.guard import METADATA_KEY
from triptych.rpc.responses import responses
from triptych.rpc.typing import Context
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import JobEvent
from triptych.v1.router_service_pb2_grpc import RouterServiceStub

log = structlog.get_logger()

# Marks a call that was sent on, so that it is not sent on for ever. Of a generation it is the call's name.
FORWARDED = "triptych-forwarded"
# On a CancelJob: not more than that the client of this generation has gone.
LEFT = "triptych-left"
# So long a call waits for a router that leads.
_WAIT_S = 10.0
_AGAIN_S = 0.1
_RETRY_AFTER_S = 1.0
# The leader has done nothing, or what it did may be asked for again: every call has an id by then.
_PASSING = frozenset({Reason.UNREACHABLE, Reason.NOT_READY, Reason.DRAINING})
_REPEATABLE = ("SubmitJobRequest", "AmendJobRequest", "GenerateMediaRequest")


Metadata = tuple[tuple[str, str | bytes], ...]


class Own(Exception):
    """It is this router that leads now."""


class _Left(Exception):
    """The router that was asked does not lead any more, and does not answer."""

    error = TriptychError(Reason.UNREACHABLE, "The router that led does not answer.")


class Forward:
    """The way to whoever leads.

    Raises `Own` when that is this router, NOT_READY when nobody does for too long, DISK_FULL when nobody can, and what
    the leader says.
    """

    def __init__(self, leadership: Leadership, own_address: str, credentials: Credentials) -> None:
        self._leadership = leadership
        self._own_address = own_address
        self._links = PeerLinks(credentials)

    async def close(self) -> None:
        await self._links.close()

    async def unary(self, method: str, request: Any, context: Context) -> Any:
        """The leader's answer. One that goes, or hangs while another takes over, is left, and the next one asked."""
        return await self._unary(method, request, metadata_of(context), _until(context))

    async def leave(self, job_id: str, call: str, metadata: Metadata) -> None:
        """Say that the client of a generation has gone; in its name."""
        request, left = pb.CancelJobRequest(job_id=job_id), (LEFT, call)
        await self._unary("CancelJob", request, (*metadata, left), time.monotonic() + _WAIT_S)

    async def stream(self, method: str, request: Any, context: Context) -> AsyncGenerator[Any, None]:
        """The leader's answers, as long as it lives."""
        stub = await self._leader(metadata_of(context), _until(context))
        call = getattr(stub, method)(request, timeout=context.time_remaining(), metadata=metadata_of(context))
        try:
            async with responses(call) as told:
                async for response in told:
                    yield response
        except grpc.aio.AioRpcError as failure:
            raise from_rpc_error(failure) from failure

    async def generation(
        self, request: pb.GenerateMediaRequest, context: Context, metadata: Metadata, told: "Told"
    ) -> AsyncGenerator[pb.GenerateMediaResponse, None]:
        """One generation, told once: a leader that comes after another is asked by the same id for what is missing."""
        _name(request)
        until_s = _until(context)
        while True:
            stub = await self._leader(metadata, until_s)
            call = stub.GenerateMedia(request, timeout=context.time_remaining(), metadata=metadata)
            try:
                async for response in self._while_leading(call):
                    until_s = time.monotonic() + _WAIT_S
                    if told.is_news(response):
                        yield response
                return
            except grpc.aio.AioRpcError as failure:
                error = from_rpc_error(failure)
            except _Left as left:
                error = left.error
            finally:
                call.cancel()
            await _pause(error, until_s)

    async def _unary(self, method: str, request: Any, metadata: Metadata, until_s: float) -> Any:
        _name(request)
        while True:
            stub = await self._leader(metadata, until_s)
            call = getattr(stub, method)(request, timeout=_left(until_s), metadata=metadata)
            changing = self._changing()
            try:
                return await self._first(asyncio.ensure_future(_answer(call)), changing)
            except grpc.aio.AioRpcError as failure:
                error = from_rpc_error(failure)
            except _Left as left:
                error = left.error
            finally:
                changing.cancel()
                call.cancel()
            await _pause(error, until_s)

    async def _leader(self, metadata: Metadata, until_s: float) -> Any:
        """A stub of whoever leads, as soon as somebody does."""
        if sum(key == FORWARDED for key, _ in metadata) > 1:
            raise TriptychError(Reason.NOT_READY, "This router does not lead.", retry_after_s=_RETRY_AFTER_S)
        while True:
            address = self._leadership.leader
            if address == self._own_address:
                raise Own
            if address:
                return RouterServiceStub(self._links.channel(address))
            if self._leadership.kept_by is not None:
                raise DiskFull(self._leadership.kept_by.store)
            try:
                await asyncio.wait_for(self._leadership.change(), _left(until_s))
            except TimeoutError:
                why = "No router leads at the moment; try again."
                raise TriptychError(Reason.NOT_READY, why, retry_after_s=_RETRY_AFTER_S) from None

    async def _while_leading(self, call: Any) -> AsyncGenerator[Any, None]:
        """What the call yields. Raises `_Left` when it hangs while another router leads."""
        changing = self._changing()
        try:
            while (response := await self._first(asyncio.ensure_future(call.read()), changing)) is not grpc.aio.EOF:
                yield response
        finally:
            changing.cancel()

    async def _first(self, answering: "asyncio.Future[Any]", changing: "asyncio.Future[bool]") -> Any:
        """The answer; raises `_Left` if there is none although another router leads by now."""
        try:
            await asyncio.wait([answering, changing], return_when=asyncio.FIRST_COMPLETED)
            # One that hands over in order may still answer what it had.
            await asyncio.wait([answering], timeout=_RETRY_AFTER_S)
            if not answering.done():
                raise _Left
            return answering.result()
        finally:
            answering.cancel()

    def _changing(self) -> "asyncio.Future[bool]":
        return asyncio.ensure_future(self._leadership.change())


class Told:
    """How far a generation has been told to its client."""

    def __init__(self) -> None:
        self.job_id = ""
        self.ended = False
        self._sequence = 0
        self._bytes: dict[int, int] = {}

    def is_news(self, response: pb.GenerateMediaResponse) -> bool:
        """Whether the client has not had this; from now on it has."""
        match response.WhichOneof("event"):
            case "accepted":
                is_first, self.job_id = not self.job_id, response.accepted.job_id
                return is_first
            case "job_event":
                return self._event(response.job_event)
            case "chunk":
                chunk = response.chunk
                if chunk.offset < self._bytes.get(chunk.output_index, 0):
                    return False
                self._bytes[chunk.output_index] = chunk.offset + max(1, len(chunk.data))
        return True

    def _event(self, event: JobEvent) -> bool:
        if event.sequence <= self._sequence:
            return False
        self._sequence = event.sequence
        self.ended = is_terminal(event)
        return True


def _name(request: Any) -> None:
    """Give a request that asks for something an id, so that it may be asked for twice."""
    if request.DESCRIPTOR.name in _REPEATABLE and not request.request_id:
        request.request_id = uuid.uuid4().hex


async def _answer(call: Any) -> Any:
    return await call


async def _pause(error: TriptychError, until_s: float) -> None:
    """Wait before the next try. Raises the error if it does not pass, or time is up."""
    if error.reason not in _PASSING or time.monotonic() + _AGAIN_S >= until_s:
        raise error
    log.info("leader_asked_again", reason=error.reason.name)
    await asyncio.sleep(_AGAIN_S)


def _until(context: Context) -> float:
    remaining_s: float | None = context.time_remaining()
    return time.monotonic() + min(_WAIT_S, _WAIT_S if remaining_s is None else remaining_s)


def _left(until_s: float) -> float:
    return max(0.001, until_s - time.monotonic())


def is_forwarded(context: Context) -> bool:
    """Whether another router has sent this call on."""
    return any(key == FORWARDED for key, _ in context.invocation_metadata() or ())


def call_of(context: Context) -> str:
    """The name of a generation's call: the one that the first router gave it, else a new one."""
    return _first(context, FORWARDED) or uuid.uuid4().hex


def left_call(context: Context) -> str:
    """The generation whose client has gone, if that is all that a CancelJob says; else ""."""
    return _first(context, LEFT)


def metadata_of(context: Context, call: str = "1") -> Metadata:
    """The caller's token, and once for each router that the call went through, that it was sent on."""
    sent = context.invocation_metadata() or ()
    return (*((key, value) for key, value in sent if key in (METADATA_KEY, FORWARDED, LEFT)), (FORWARDED, call))


def _first(context: Context, key: str) -> str:
    return next((str(value) for sent, value in context.invocation_metadata() or () if sent == key), "")
