"""What a router that does not lead can tell of jobs: the stores have it, and say when there is more."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import nats.errors

from services.router.access.principal import Principal
from services.router.config import RouterConfig
from services.router.going_down import going_down
from services.router.jobs import JobTable, LiveJob, job_request
from services.router.pricing import stage_seconds
from services.router.reads.downloads import Downloads
from services.router.reads.listing import Listing
from services.router.reads.previews import PreviewFeed
from services.router.reads.watch import Watch
from services.router.store.event_log import EventStore, StoredEvent
from services.router.store.fold import apply, end_of
from services.router.store.records import JobKey, JobStore
from triptych.endings import is_over, is_terminal
from triptych.exchange import Exchange, events_subject
from triptych.v1.job_pb2 import Job, JobEvent, JobRecord, Preview

# An event is heard of as it is sent to be stored: a moment before it can be read, or for nothing.
_SOON_S = 0.02
# How long a log is left alone in which nothing was heard of; what is heard may be lost.
_LOOK_EVERY_S = 1.0


class Archive:
    """The reads of the router's contract, answered from the stores. `close` ends every watch."""

    def __init__(self, config: RouterConfig, exchange: Exchange) -> None:
        events, records = EventStore(exchange), JobStore(exchange)
        # None lives here.
        jobs = JobTable(config.max_ended_jobs, config.ended_jobs_s)
        self.watch = StoredWatch(jobs, events, records, exchange)
        self.listing = StoredListing(jobs, events, records, config.page_size, config.max_page_size)
        self.downloads = Downloads(exchange, config.max_downloads, config.download_stall_s)

    def close(self) -> None:
        self.watch.close()


class StoredWatch(Watch):
    """Follows logs in the store: a watch goes on whoever writes them."""

    def __init__(self, jobs: JobTable, events: EventStore, records: JobStore, exchange: Exchange) -> None:
        super().__init__(jobs, events, records, PreviewFeed(exchange.control))
        self._exchange = exchange
        self._followed: set[_Followed] = set()

    def close(self) -> None:
        super().close()
        for followed in self._followed:
            followed.job.wake()

    async def job(self, job_id: str, who: Principal) -> Job:
        """The job as its log tells it so far, which is ahead of its record. Raises JOB_UNKNOWN."""
        return await _caught_up(await super().job(job_id, who), self._events)

    async def follow(
        self, job_id: str, after_sequence: int, who: Principal
    ) -> AsyncGenerator[JobEvent | Preview, None]:
        """The job's events past a sequence, until and with the one that ends it, and previews between them.

        Raises JOB_UNKNOWN, DRAINING.
        """
        known = await super().job(job_id, who)
        ended = is_over(known)
        shown: Preview | None = None
        revision = 0
        async with self._following(known) as followed:
            while True:
                woken, followed.heard = followed.heard, False
                before = revision
                async for stored in self._events.read(job_id, revision):
                    revision = stored.revision
                    followed.take(stored)
                    if stored.event.sequence > after_sequence:
                        yield stored.event
                    if is_terminal(stored.event):
                        return
                if ended:
                    if known.last_sequence > after_sequence:
                        yield end_of(known)  # the log is gone
                    return
                if self._closing.is_set():
                    raise going_down()
                if followed.job.preview is not None and followed.job.preview is not shown:
                    shown = followed.job.preview
                    yield shown
                if not woken and revision == before:
                    # Nothing for a while: it may have ended, and its log gone to make room, since it was read.
                    known = await super().job(job_id, who)
                    ended = is_over(known)
                    if ended:
                        continue
                await followed.news(_SOON_S if woken and revision == before else _LOOK_EVERY_S)

    @contextlib.asynccontextmanager
    async def _following(self, known: Job) -> "AsyncIterator[_Followed]":
        followed = _Followed(known)

        async def hear(message: Any) -> None:
            followed.heard = True
            followed.job.wake()

        self._followed.add(followed)
        subscription = await self._exchange.control.subscribe(events_subject(known.job_id), cb=hear)
        try:
            async with PreviewFeed(self._exchange.control).watching(followed.job):
                yield followed
        finally:
            self._followed.discard(followed)
            with contextlib.suppress(nats.errors.Error):  # the connection may be closed
                await subscription.unsubscribe()


class _Followed:
    """A job as far as its log was read. `heard`: an event of it was sent to be stored since."""

    def __init__(self, known: Job) -> None:
        request = job_request(known.job_id, known.tenant, known.spec, stage_seconds(known.estimate))
        self.job = LiveJob(JobRecord(job=known), known.spec, request)
        self.heard = False

    def take(self, stored: StoredEvent) -> None:
        if stored.event.sequence > self.job.job.last_sequence:
            self.job.log(stored)

    async def news(self, timeout_s: float) -> None:
        """Wait until there may be more."""
        if not self.heard:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.job.change(), timeout_s)


class StoredListing(Listing):
    """Pages of jobs as their logs tell them."""

    def __init__(
        self, jobs: JobTable, events: EventStore, records: JobStore, page_size: int, max_page_size: int
    ) -> None:
        super().__init__(jobs, records, page_size, max_page_size)
        self._events = events

    async def _read(self, keys: list[JobKey]) -> list[Job]:
        return [await _caught_up(job, self._events) for job in await super()._read(keys)]


async def _caught_up(job: Job, events: EventStore) -> Job:
    """The job, brought up to its log, which is ahead of its record while it lives."""
    if not is_over(job):
        async for stored in events.read(job.job_id):
            if stored.event.sequence > job.last_sequence:
                apply(job, stored.event)
    return job
