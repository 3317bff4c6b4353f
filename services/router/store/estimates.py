"""Keeps what the estimator has learnt: in the KV bucket "jobs", for the next router of the suite."""

import asyncio
import json
from typing import Any

import nats.js.errors
import structlog
from nats.js.kv import KeyValue

from services.router.pricing import Pricing
from services.router.store import compare_and_set
from services.router.store.compare_and_set import Conflict
from triptych.exchange import Exchange, ExchangeError

log = structlog.get_logger()

_KEY = "estimates"
_SAVE_EVERY_S = 30.0


class Estimates:
    """One key, written when what was learnt has changed, by the router of the newest term alone.

    Jobs are served without it: what cannot be read or written is logged. It expires with the bucket's other entries
    unless it is written again, which each start of a router does.
    """

    def __init__(self, exchange: Exchange, pricing: Pricing, epoch: int) -> None:
        self._exchange = exchange
        self._pricing = pricing
        self._epoch = epoch
        self._revision = 0
        self._saved: dict[str, Any] = {}

    async def restore(self) -> None:
        """Take up what was saved last."""
        try:
            state = await self._read()
            if state:
                self._pricing.restore(state)
        except ExchangeError as error:
            log.warning("estimates_not_read", error=str(error))
        except ValueError as error:
            log.warning("estimates_left_aside", error=str(error))

    async def run(self) -> None:
        """Save now and then, until cancelled."""
        while True:
            await self.save()
            await asyncio.sleep(_SAVE_EVERY_S)

    async def save(self) -> None:
        """Save what was learnt since the last time."""
        state = self._pricing.state() | {"epoch": self._epoch}
        if state == self._saved:
            return
        try:
            await self._write(state)
            self._saved = state
        except (ExchangeError, Conflict, ValueError) as error:
            log.warning("estimates_not_saved", error=str(error))

    async def _write(self, state: dict[str, Any]) -> None:
        try:
            await self._put(state)
        except Conflict:
            # A router of an earlier term was not quite gone.
            if (await self._read()).get("epoch", 0) > self._epoch:
                raise
            await self._put(state)

    async def _put(self, state: dict[str, Any]) -> None:
        value = json.dumps(state, separators=(",", ":")).encode()
        bucket, last = await self._bucket(), self._revision
        self._revision = await compare_and_set.put(self._exchange, "jobs", bucket, _KEY, value, last=last)

    async def _read(self) -> dict[str, Any]:
        """The state as it is stored, empty if there is none. Raises ValueError if it is no JSON object."""
        bucket = await self._bucket()
        with compare_and_set.translated(_KEY):
            try:
                entry = await bucket.get(_KEY)
            except nats.js.errors.KeyNotFoundError:
                return {}
        self._revision = int(entry.revision or 0)
        state = json.loads(entry.value or b"{}")
        if not isinstance(state, dict):
            raise ValueError(f"{_KEY} are no JSON object")
        return state

    async def _bucket(self) -> KeyValue:
        return await self._exchange.bucket("jobs")
