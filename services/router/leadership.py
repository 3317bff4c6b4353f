"""Which router is in charge: the key "leader", whose revision is the router's term (epoch)."""

import asyncio
import secrets

import nats.js.errors
import structlog
from nats.js.kv import KeyValue

from services.router import durable
from triptych.exchange import Exchange, ExchangeError, ExchangeUnavailable

log = structlog.get_logger()

_KEY = "router"
_TAKE_TRIES = 10


class Leadership:
    """Takes the key over from whoever has it, then keeps it by writing it again before it expires."""

    def __init__(self, exchange: Exchange, address: str, ttl_s: float) -> None:
        self.epoch = 0
        self._exchange = exchange
        # Unlike any other router's: a write whose answer was lost is known again by it.
        self._value = f"{address} {secrets.token_hex(8)}".encode()
        self._pause_s = ttl_s / 4
        self._revision = 0

    async def take(self) -> int:
        """Become the leader; returns the epoch, higher than any before. Raises ExchangeUnavailable."""
        bucket = await self._exchange.bucket("leader")
        for _ in range(_TAKE_TRIES):
            try:
                self.epoch = self._revision = await self._write(bucket, (await _holder(bucket))[0])
            except durable.Conflict:
                continue
            log.info("leadership_taken", epoch=self.epoch)
            return self.epoch
        raise ExchangeUnavailable("other routers take the leadership again and again")

    async def keep(self) -> str:
        """Stay the leader for as long as possible; returns why that is over."""
        bucket = await self._exchange.bucket("leader")
        while True:
            await asyncio.sleep(self._pause_s)
            try:
                if not await self._renew(bucket):
                    return "another router has taken over"
            except ExchangeError as error:
                log.warning("leadership_not_renewed", error=str(error))

    async def _renew(self, bucket: KeyValue) -> bool:
        """Whether it is still ours."""
        try:
            self._revision = await self._write(bucket, self._revision)
        except durable.Conflict:
            revision, value = await _holder(bucket)
            if revision and value != self._value:
                return False
            # An earlier write's answer was lost; or it expired while NATS was away, and nobody wanted it.
            self._revision = revision
        return True

    async def _write(self, bucket: KeyValue, last: int) -> int:
        with durable.translated("leader"):
            if last:
                return int(await bucket.update(_KEY, self._value, last=last))
            return int(await bucket.create(_KEY, self._value))


async def _holder(bucket: KeyValue) -> tuple[int, bytes]:
    """The key's revision and value now; 0 if nobody leads."""
    with durable.translated("leader"):
        try:
            entry = await bucket.get(_KEY)
        except nats.js.errors.KeyNotFoundError:
            return 0, b""
    return int(entry.revision or 0), entry.value or b""
