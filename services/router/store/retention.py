"""How long bundles stay: as long as a job that is not over names them, and their store's retention after that."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping

import structlog

from services.router.jobs import JobTable
from services.router.leadership.lease import Deposed
from triptych.exchange import Exchange, ExchangeConfig, ExchangeError
from triptych.v1.job_pb2 import JobRecord
from triptych.v1.tensor_pb2 import DataRef

log = structlog.get_logger()

# Of a retention, between two looks at a store; and seconds, at most.
_LOOK_EVERY = 0.1
_LOOK_EVERY_S = 300.0
_REMOVED_TOGETHER = 16


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

    def note_end(self, record: JobRecord) -> None:
        """A job ended under an earlier router: what it named counts from then, not from this router's first look."""
        ended_s = record.job.end_time.ToNanoseconds() / 1e9
        for ref in _named(record):
            since_s = self._unnamed.get(ref.store)
            if since_s is not None:
                since_s[ref.bundle_id] = max(ended_s, since_s.get(ref.bundle_id, 0.0))

    async def run(self) -> None:
        """Look again and again, until cancelled or another router leads."""
        try:
            async with asyncio.TaskGroup() as looking:
                for store in self._kept_s:
                    looking.create_task(self._run(store))
        except* Deposed as error:
            log.info("retention_left_to_another", why=str(error.exceptions[0]))

    async def sweep(self, store: str, now_s: float) -> None:
        """Look once, at `now_s` Unix seconds. Raises Deposed, ExchangeUnavailable."""
        there = await self._exchange.bundle_ids(store)
        known, named = self._unnamed[store], self._names(store)
        unnamed = self._unnamed[store] = {each: known.get(each, now_s) for each in there - named}
        expired = [each for each, since_s in unnamed.items() if since_s + self._kept_s[store] <= now_s]
        for start in range(0, len(expired), _REMOVED_TOGETHER):
            await self._confirm()
            # One that is named by now has a job that found it at the last moment.
            named = self._names(store)
            together = [each for each in expired[start : start + _REMOVED_TOGETHER] if each not in named]
            refs = [DataRef(store=store, bundle_id=each) for each in together]
            await asyncio.gather(*(self._exchange.delete(ref) for ref in refs))
        if expired:
            log.info("bundles_removed", store=store, count=len(expired), kept_count=len(there) - len(expired))

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
        return {ref.bundle_id for job in self._jobs for ref in _named(job.record) if ref.store == store}


def _named(record: JobRecord) -> Iterator[DataRef]:
    for conditioning in record.conditioning:
        yield conditioning.data
    for latents in (*record.latents, *record.refined_latents):
        yield latents.data
    if record.HasField("checkpoint"):
        yield record.checkpoint.data
    for output in record.job.outputs:
        yield output.data
