"""How full the stores are: who submits hears of it, so that nobody's work is lost to a full store later.

Stores are kept from getting there: of what nobody was promised the oldest goes early, if need be.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

import nats.errors
import nats.js.errors
import structlog

from services.router.leadership.lease import Deposed
from services.router.store.pruning import Pruning
from triptych.errors import Reason, TriptychError
from triptych.exchange import Exchange, ExchangeError
from triptych.tasks import run_together

log = structlog.get_logger()

_LOOK_EVERY_S = 1.0
_RETRY_AFTER_S = 30.0
_EVENTS = "EVENTS"
_CONDITIONING = "CONDITIONING"
# Parts of the high water at which a store is pruned, and down to which.
_PRUNE_FROM = 0.8
_PRUNE_TO = 0.7
# Part of it past which the next job alone is encoded, of each pool, model and length. Half-way from the high water to
# the last byte none is.
_ENCODE_ONE_FROM = 0.9
# After nothing was found that could go: who looks lists all that is there.
_IN_VAIN_S = 5.0
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

    Past `high_water`, a part of a store's bytes, no new job is taken: the rest is for those that were accepted. Well
    before that `prunings`, by stream, make room. `bound_encodes` is told how many jobs may be encoded ahead of their
    turn (None: as many as is set): those that wait unencoded lose nothing.
    """

    def __init__(
        self,
        exchange: Exchange,
        high_water: float,
        prunings: Mapping[str, Pruning],
        bound_encodes: Callable[[int | None], None],
    ) -> None:
        self._bound_encodes = bound_encodes
        self._encodes: int | None = None
        self._exchange = exchange
        self._high_water = high_water
        self._prunings = prunings
        self._fill: dict[str, float] = {}

    async def run(self) -> None:
        """Look again and again, and make room, until cancelled."""
        await run_together(self._look_on(), *map(self._keep_room, self._prunings))

    async def look(self) -> None:
        """Look once. What cannot be seen is as it was."""
        for stream in STORES:
            if not await self._see(stream):
                return

    @property
    def scarce(self) -> bool:
        """Whether there is hardly any for events, although old logs were pruned."""
        return self._fill.get(_EVENTS, 0.0) >= self._high_water

    async def _look_on(self) -> None:
        while True:
            try:
                await self.look()
                self._tell()
            except Exception:
                # A store at which nobody looks is not known to be full: go on.
                log.exception("stores_unseen")
            await asyncio.sleep(_LOOK_EVERY_S)

    def _tell(self) -> None:
        fill = self._fill.get(_CONDITIONING, 0.0)
        none_from = (1.0 + self._high_water) / 2.0
        encodes = None if fill < _ENCODE_ONE_FROM * self._high_water else int(fill < none_from)
        if encodes != self._encodes:
            log.info("encodes_bounded", ahead_jobs=encodes, fill=round(fill, 3))
            self._encodes = encodes
            self._bound_encodes(encodes)

    async def _see(self, stream: str) -> bool:
        try:
            info = await self._exchange.jetstream.stream_info(stream)
        except (nats.errors.Error, nats.js.errors.Error, TimeoutError) as error:
            log.warning("store_unseen", store=stream, error=repr(error))
            return False
        limit = info.config.max_bytes or -1
        self._fill[stream] = info.state.bytes / limit if limit > 0 else 0.0
        return True

    async def _keep_room(self, stream: str) -> None:
        while True:
            pause_s = _LOOK_EVERY_S
            try:
                if not await self._make_room(stream):
                    pause_s = _IN_VAIN_S
            except (ExchangeError, Deposed) as error:
                log.warning("store_not_pruned", store=stream, error=str(error))
            except Exception:
                # A store in which nobody makes room fills up: go on.
                log.exception("store_not_pruned", store=stream)
            await asyncio.sleep(pause_s)

    async def _make_room(self, stream: str) -> bool:
        """Whether there is room, or more of it now."""
        most = _PRUNE_FROM * self._high_water
        if self._fill.get(stream, 0.0) < most or not await self._see(stream) or self._fill[stream] < most:
            return True
        removed_count = await self._prunings[stream].prune(1.0 - _PRUNE_TO * self._high_water / self._fill[stream])
        await self._see(stream)
        return removed_count > 0

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
