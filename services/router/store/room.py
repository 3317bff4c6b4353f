"""How full the stores are: who submits hears of it, so that nobody's work is lost to a full store later.

The stream of events is kept from getting there: the logs of jobs that are over go early, if need be.
"""

import asyncio
from collections.abc import Iterable

import nats.errors
import nats.js.errors
import structlog

from services.router.leadership.lease import Deposed
from services.router.store.log_pruning import LogPruning
from triptych.errors import Reason, TriptychError
from triptych.exchange import Exchange, ExchangeError

log = structlog.get_logger()

_LOOK_EVERY_S = 1.0
_RETRY_AFTER_S = 30.0
_EVENTS = "EVENTS"
# Parts of the high water at which old logs are pruned, and down to which.
_PRUNE_FROM = 0.9
_PRUNE_TO = 0.8
# The streams that a job writes to, and the settings of their sizes.
STORES = {
    "CONDITIONING": "conditioning_max_bytes",
    "LATENTS": "latents_max_bytes",
    "OUTPUTS": "outputs_max_bytes",
    "EVENTS": "events_max_bytes",
    "KV_jobs": "jobs_max_bytes",
}


class Room:
    """What is known of the stores' fill, a second old at most while NATS answers.

    Past `high_water`, a part of a store's bytes, no new job is taken: the rest is for those that were accepted.
    """

    def __init__(self, exchange: Exchange, high_water: float, pruning: LogPruning) -> None:
        self._exchange = exchange
        self._high_water = high_water
        self._pruning = pruning
        self._fill: dict[str, float] = {}

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await self._make_room()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def look(self) -> None:
        """Look once. What cannot be seen is as it was."""
        for stream in STORES:
            try:
                info = await self._exchange.jetstream.stream_info(stream)
            except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
                log.warning("store_unseen", store=stream, error=repr(error))
                return
            limit = info.config.max_bytes or -1
            self._fill[stream] = info.state.bytes / limit if limit > 0 else 0.0

    @property
    def scarce(self) -> bool:
        """Whether there is hardly any for events, although old logs were pruned."""
        return self._fill.get(_EVENTS, 0.0) >= self._high_water

    async def _make_room(self) -> None:
        fill, most = self._fill.get(_EVENTS, 0.0), _PRUNE_FROM * self._high_water
        if fill < most:
            return
        try:
            await self._pruning.prune(1.0 - _PRUNE_TO * self._high_water / fill)
        except (ExchangeError, Deposed) as error:
            log.warning("logs_not_pruned", error=str(error))

    def check(self) -> None:
        """Raises STORE_FULL, with the store and what to do about it."""
        for stream, fill in self._full():
            log.warning("store_full", store=stream, fill=round(fill, 3))
            raise TriptychError(
                Reason.STORE_FULL,
                f"The store {stream} is {fill:.0%} full; what is there expires in time, or raise {STORES[stream]}.",
                metadata={"store": stream, "fill": f"{fill:.3f}", "limit": f"{self._high_water:.3f}"},
                retry_after_s=_RETRY_AFTER_S,
            )

    def _full(self) -> Iterable[tuple[str, float]]:
        return [(stream, fill) for stream, fill in self._fill.items() if fill >= self._high_water]
