"""Which router is in charge: a lease on the key of the bucket "leader", whose revision is the router's term (epoch).

The leader writes the key again and again. Who has seen no new revision for as long as the lease lasts, while NATS
answered, may take it: by compare and set, so that one does. Clocks decide nothing more than when to try: what a former
leader still does is refused by what it does it to, for its epoch is lower.
"""

import asyncio
import secrets
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import nats.js.errors
import structlog
from nats.js.kv import KeyValue

from services.router.changes import Changes
from services.router.store import compare_and_set
from triptych.exchange import DiskFull, Exchange, ExchangeError

log = structlog.get_logger()

_KEY = "router"
_STREAM = "KV_leader"
_LOOK_EVERY_S = 0.2
# An answer that took so much of a lease came over a way on which the leader's word may have been held up as well.
_SLOW = 0.25


class Deposed(Exception):
    """Another router leads."""


@dataclass(frozen=True, slots=True)
class Seat:
    """The key as it is. Revision 0: it has expired, or never was; `given_up`: its last holder let it go."""

    revision: int
    value: bytes = b""
    given_up: bool = False

    @property
    def address(self) -> str:
        """Where its holder is reached; "" if it has none."""
        return self.value.decode(errors="replace").partition(" ")[0]


class Leadership:
    """One router's part in it. `leader` is the address of whoever leads, "" while nobody is known to.

    `kept_by`: why this router cannot lead although nobody does, where the disk is full. Who leads already goes on.
    `epoch` is the newest term of this router, 0 if it never led.
    """

    def __init__(self, exchange: Exchange, address: str, ttl_s: float) -> None:
        self.epoch = 0
        self.leader = ""
        self.kept_by: DiskFull | None = None
        self._exchange = exchange
        self._address = address
        # Unlike any other router's: a write whose answer was lost is known again by it.
        self._value = f"{address} {secrets.token_hex(8)}".encode()
        self._ttl_s = ttl_s
        self._revision = 0
        # Writes since the last that was answered: any of them may have been stored.
        self._unanswered = 0
        self._held_until_s = 0.0
        self._renewing = asyncio.Lock()
        # Not by cancelling alone: what waits for an answer may miss that, if the answer comes at that moment.
        self._resigned = False
        self._changes = Changes()
        self._opened: KeyValue | None = None

    @property
    def other(self) -> str:
        """The address of another router that leads; "" if there is none."""
        return self.leader if self.leader != self._address else ""

    async def win(self, pause_s: float = 0.0) -> int:
        """Wait until nobody leads, then lead; returns the epoch, higher than any before.

        A lease that stands in this router's own address is an earlier process's, which is dead: it is taken at once.
        `pause_s`: so long others go first.
        """
        seen: Seat | None = None
        since_s = time.monotonic()
        not_before_s = since_s + pause_s
        while True:
            asked_s = time.monotonic()
            try:
                seat = await _seat(await self._bucket())
            except ExchangeError as error:
                log.warning("leader_unknown", error=str(error))
                since_s = time.monotonic()
                await asyncio.sleep(_LOOK_EVERY_S)
                continue
            now_s = time.monotonic()
            known, seen = seen, seat
            if (known is not None and seat.revision > known.revision) or now_s - asked_s > _SLOW * self._ttl_s:
                since_s = now_s
            self._tell(seat)
            if now_s >= not_before_s and (self._is_free(seat, known) or now_s - since_s >= self._ttl_s):
                try:
                    return await self._take(seat)
                except (compare_and_set.Conflict, ExchangeError) as error:
                    log.info("leadership_missed", why=str(error))
                    if isinstance(error, DiskFull):
                        self.kept_by = error
                        self._changes.tell()
                    since_s = time.monotonic()
            await asyncio.sleep(min(_LOOK_EVERY_S, self._ttl_s / 10))

    def open(self) -> None:
        """This router does what a leader does from now on."""
        self._set_leader(self._address)

    async def keep(self) -> str:
        """Stay the leader for as long as possible; returns why that is over."""
        while True:
            await asyncio.sleep(self._ttl_s / 4)
            try:
                async with self._renewing:
                    if self._resigned:
                        return "it was let go"
                    await self._renew()
            except Deposed as error:
                return str(error)
            except ExchangeError as error:
                log.warning("leadership_not_renewed", error=str(error))

    async def confirm(self) -> None:
        """Return if nobody else can have led since this router's term began: at once while the lease holds.

        Raises Deposed, ExchangeUnavailable.
        """
        if time.monotonic() >= self._held_until_s:
            async with self._renewing:
                if self._resigned:
                    raise Deposed("this router has let the leadership go")
                if time.monotonic() >= self._held_until_s:
                    await self._renew()

    async def resign(self) -> None:
        """Let it go, so that another router leads at once."""
        self._resigned = True
        self._set_leader("")
        async with self._renewing:
            self._held_until_s = 0.0
            try:
                bucket = await self._bucket()
                with compare_and_set.translated("leader"):
                    await self._exchange.written(_STREAM, bucket.delete(_KEY, last=self._revision))
            except (compare_and_set.Conflict, ExchangeError) as error:
                log.info("leadership_not_resigned", why=str(error))
            else:
                log.info("leadership_resigned", epoch=self.epoch)

    def change(self) -> Coroutine[Any, Any, bool]:
        """Return what waits until, after this call, another router leads, or none, or it is known why none does."""
        return self._changes.next()

    def _is_free(self, seat: Seat, known: Seat | None) -> bool:
        if seat.given_up:
            return True
        if known is not None or self.epoch:
            return False
        return not seat.revision or seat.address == self._address

    async def _take(self, seat: Seat) -> int:
        began_s = time.monotonic()
        self.epoch = self._revision = await self._write(seat.revision)
        self._held_until_s = began_s + self._ttl_s
        self._unanswered, self._resigned = 0, False
        self._set_leader("")
        log.info("leadership_taken", epoch=self.epoch)
        return self.epoch

    async def _renew(self) -> None:
        """Raises Deposed, ExchangeUnavailable."""
        began_s = time.monotonic()
        self._unanswered += 1
        try:
            revision = await self._write(self._revision)
        except compare_and_set.Conflict:
            seat = await _seat(await self._bucket())
            if seat.given_up or (seat.revision and seat.value != self._value):
                raise self._deposed(seat) from None
            # An earlier write's answer was lost; or it expired while NATS was away, and nobody wanted it.
            try:
                revision = await self._write(seat.revision)
            except compare_and_set.Conflict:
                raise Deposed("another router has taken over") from None
            if revision > self._revision + self._unanswered:
                raise Deposed("another router has led meanwhile") from None
        self._revision, self._unanswered = revision, 0
        self._held_until_s = began_s + self._ttl_s

    def _deposed(self, seat: Seat) -> Deposed:
        """Return the error. It names the cause where two living routers share an address."""
        why = "another router has taken over"
        if seat.address == self._address:
            why += f"; it advertises {seat.address}, as this one does: give each router an address of its own"
        return Deposed(why)

    async def _write(self, last: int) -> int:
        return await compare_and_set.put(self._exchange, "leader", await self._bucket(), _KEY, self._value, last=last)

    async def _bucket(self) -> KeyValue:
        self._opened = self._opened or await self._exchange.bucket("leader")
        return self._opened

    def _tell(self, seat: Seat) -> None:
        gone = not seat.revision or seat.given_up or seat.address == self._address
        self._set_leader("" if gone else seat.address)

    def _set_leader(self, address: str) -> None:
        if address:
            self.kept_by = None
        if address != self.leader:
            self.leader = address
            self._changes.tell()


async def _seat(bucket: KeyValue) -> Seat:
    with compare_and_set.translated("leader"):
        try:
            entry = await bucket.get(_KEY)
        except nats.js.errors.KeyNotFoundError as error:
            marker = error.entry
            return Seat(int(marker.revision or 0), given_up=True) if marker is not None else Seat(0)
    return Seat(int(entry.revision or 0), entry.value or b"")
