"""How long bundles stay: as long as a job that is not over names them, and their store's retention after that.

Where room is short, conditioning and latents that no such job names go before their time.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import structlog

from services.router.jobs import JobTable
from services.router.leadership.lease import Deposed
from services.router.store.named import bundles_of
from triptych.durations import seconds_of
from triptych.exchange import Exchange, ExchangeConfig, ExchangeError
from triptych.tasks import run_together
from triptych.v1.job_pb2 import JobRecord
from triptych.v1.tensor_pb2 import DataRef

log = structlog.get_logger()

# Of a retention, between two looks at a store; and seconds, at most.
_LOOK_EVERY = 0.1
_LOOK_EVERY_S = 300.0
# Nothing goes early that a job may be about to name: of a retention, and seconds, at most.
_SPARED = 0.1
_SPARED_S = 10.0
_REMOVED_TOGETHER = 16
# Before their time, at once.
_MAX_EARLY = 512


class Retention:
    """Removes what no job has named for as long as its store keeps it: what ended jobs left, and what nobody took up.

    Only the router in charge does: it is the one that knows every job. What it cannot remove now it removes later.
    """

    def __init__(
        self, exchange: Exchange, config: ExchangeConfig, jobs: JobTable, confirm: Callable[[], Awaitable[None]]
    ) -> None:
        self._exchange = exchange
        self._jobs = jobs
        self._confirm = confirm
        self._kept_s: Mapping[str, float] = {
            "conditioning": config.conditioning_ttl_s,
            "latents": config.latents_ttl_s,
            "outputs": config.outputs_ttl_s,
        }
        # By store, for every bundle in it that no job names: since when, as far as is known (Unix seconds).
        self._unnamed: dict[str, dict[str, float]] = {store: {} for store in self._kept_s}
        # What was there, and not complete, at the last look.
        self._unfinished: dict[str, Collection[str]] = dict.fromkeys(self._kept_s, ())
        self._going: set[str] = set()

    def note_end(self, record: JobRecord) -> None:
        """A job ended, now or under an earlier router: what it named counts from then, not from the next look.

        What it had given back before, and is there still, goes at that look.
        """
        ended_s = seconds_of(record.job.end_time)
        for ref in bundles_of(record):
            since_s = self._unnamed.get(ref.store)
            if since_s is not None:
                since_s[ref.bundle_id] = max(ended_s, since_s.get(ref.bundle_id, 0.0))
        for ref in record.surrendered:
            self._unnamed[ref.store][ref.bundle_id] = 0.0

    async def run(self) -> None:
        """Look again and again, until cancelled or another router leads."""
        try:
            await run_together(*map(self._run, self._kept_s))
        except Deposed as error:
            log.info("retention_left_to_another", why=str(error))

    async def sweep(self, store: str, now_s: float) -> None:
        """Look once, at `now_s` Unix seconds. Raises Deposed, ExchangeUnavailable."""
        unnamed = await self._look(store, now_s)
        expired = [each for each, since_s in unnamed.items() if since_s + self._kept_s[store] <= now_s]
        await self._remove(store, expired, now_s - self._kept_s[store])

    async def shorten(self, store: str, share: float, now_s: float) -> int:
        """Remove such a share (0 to 1) of a store's bundles before their time, those first that were wanted last.

        Only what no job names, nor may be about to; returns how many went. Raises Deposed, ExchangeUnavailable.
        """
        unnamed = await self._look(store, now_s)
        until_s = now_s - min(_SPARED_S, _SPARED * self._kept_s[store])
        complete = unnamed.keys() - self._unfinished[store]
        idle = sorted((unnamed[each], each) for each in complete if unnamed[each] <= until_s)
        most = min(_MAX_EARLY, math.ceil(share * (len(unnamed) + len(self._names(store)))))
        return await self._remove(store, [each for _, each in idle[:most]], until_s)

    def keep(self, refs: Collection[DataRef], now_s: float) -> bool:
        """Spare for a while what a job is about to name; whether none of it is being removed."""
        for ref in refs:
            self._unnamed[ref.store][ref.bundle_id] = now_s
        return not any(ref.bundle_id in self._going for ref in refs)

    async def _look(self, store: str, now_s: float) -> dict[str, float]:
        """What is there that no job names, and since when. Whose put has ended meanwhile counts from now."""
        there = await self._exchange.bundles(store)
        known, named, begun = self._unnamed[store], self._names(store), self._unfinished[store]
        self._unfinished[store] = {each for each, complete in there.items() if not complete}
        unnamed = self._unnamed[store] = {
            each: now_s if complete and each in begun else known.get(each, now_s)
            for each, complete in there.items()
            if each not in named
        }
        return unnamed

    async def _remove(self, store: str, bundle_ids: Sequence[str], until_s: float) -> int:
        """Of these those that are still unnamed, and have been since `until_s`: others have a job by now."""
        count = 0
        for start in range(0, len(bundle_ids), _REMOVED_TOGETHER):
            await self._confirm()
            named, since_s = self._names(store), self._unnamed[store]
            together = [
                each
                for each in bundle_ids[start : start + _REMOVED_TOGETHER]
                if each not in named and since_s.get(each, until_s) <= until_s
            ]
            refs = [DataRef(store=store, bundle_id=each) for each in together]
            self._going.update(together)
            try:
                # Not over another connection: by then another router may lead, and know who needs them.
                await asyncio.gather(*(self._exchange.delete(ref, persist=False) for ref in refs))
            finally:
                self._going.difference_update(together)
            count += len(together)
        if count:
            log.info("bundles_removed", store=store, count=count)
        return count

    async def _run(self, store: str) -> None:
        while True:
            try:
                await self.sweep(store, time.time())
            except ExchangeError as error:
                log.warning("store_not_tidied", store=store, error=str(error))
            except Deposed:
                raise
            except Exception:
                # A store that nobody tidies fills up: go on.
                log.exception("store_not_tidied", store=store)
            await asyncio.sleep(min(_LOOK_EVERY_S, _LOOK_EVERY * self._kept_s[store]))

    def _names(self, store: str) -> set[str]:
        """What jobs that are not over need, or are to hand out."""
        return {ref.bundle_id for job in self._jobs for ref in bundles_of(job.record) if ref.store == store}


class BundlePruning:
    """Makes room in one store; see `Retention.shorten`."""

    def __init__(self, retention: Retention, store: str) -> None:
        self._retention = retention
        self._store = store

    async def prune(self, share: float) -> int:
        return await self._retention.shorten(self._store, share, time.time())
