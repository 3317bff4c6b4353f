"""Whether NATS's disk has room: who submits hears of it at once, and what was accepted waits."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import structlog

from triptych.exchange import BundleInvalid, DiskFull, Entry, Exchange, ExchangeConfig, ExchangeError, StoreFull
from triptych.exchange.streams import stream_specs
from triptych.tasks import checked

log = structlog.get_logger()

T = TypeVar("T")

_LOOK_EVERY_S = 1.0
_STREAMS = tuple(spec.name for spec in stream_specs(ExchangeConfig()))
# What is written to see whether there is room again.
_TRIAL = bytes(1 << 20)


class Disk:
    """Full from the first write that failed for it, on any stream, until every stream can be written again."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._error: DiskFull | None = None
        self._has_room = asyncio.Event()
        self._has_room.set()

    def note(self, error: DiskFull) -> None:
        """A write failed for it."""
        if self._error is None:
            log.error("disk_full", store=error.store)
        self._error = error
        self._has_room.clear()

    def check(self) -> None:
        """Raises DISK_FULL."""
        if self._error is not None:
            raise DiskFull(self._error.store)

    async def has_room(self) -> None:
        """Wait until it is not full."""
        await self._has_room.wait()

    async def answered(self, answering: Awaitable[T]) -> T:
        """What comes of something that is to be written. Raises DISK_FULL where that has to wait for room."""

        async def check() -> None:
            self.check()

        return await checked(answering, check, _LOOK_EVERY_S)

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            try:
                await self._look()
            except DiskFull as error:
                self.note(error)
            except ExchangeError as error:
                log.warning("disk_unseen", error=str(error))
            except Exception:
                # A disk at which nobody looks stays full for ever: go on.
                log.exception("disk_unseen")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _look(self) -> None:
        for stream in _STREAMS:
            await self._exchange.check_writable(stream)
        if self._error is not None:
            await self._try()
            log.info("disk_has_room")
            self._error = None
            self._has_room.set()

    async def _try(self) -> None:
        """Write a small bundle: nats-server before 2.14 takes writes up again by itself, and cannot be asked."""
        try:
            ref = await self._exchange.put("latents", {"trial": Entry(_TRIAL)})
            await self._exchange.delete(ref)
        except (StoreFull, BundleInvalid):
            return  # by its own limits
