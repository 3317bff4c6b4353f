"""Follows a job's log: what is stored already, then what comes, each event once; between events, its newest preview."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from services.router.access.principal import Principal
from services.router.going_down import going_down
from services.router.jobs import JobTable, LiveJob
from services.router.reads.previews import PreviewFeed
from services.router.store.event_log import EventStore
from services.router.store.fold import end_of
from services.router.store.records import JobStore
from triptych.endings import is_over
from triptych.errors import Reason, TriptychError
from triptych.v1.job_pb2 import Job, JobEvent, Preview


class Watch:
    """A watcher is a place in the log and nothing more: a slow one falls behind, and reads the store.

    For who may not see a job it is unknown: looked for in the same places, and missed in the same words, as one that
    never was.

    Of previews it gets the newest when it is ready for one: what it was too slow for is lost to it.
    """

    def __init__(self, jobs: JobTable, events: EventStore, records: JobStore, previews: PreviewFeed) -> None:
        self._jobs = jobs
        self._events = events
        self._records = records
        self._previews = previews
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End every stream with DRAINING, so that its client goes on elsewhere."""
        self._closing.set()
        for job in self._jobs:
            job.wake()

    async def job(self, job_id: str, who: Principal) -> Job:
        """The job as its log tells it so far. Raises JOB_UNKNOWN."""
        live = self._live(job_id, who)
        if live is not None and live.durable:
            return live.job
        stored = await self._records.read(who.tenant, job_id)
        if stored is None and who.is_admin:
            for key in await self._records.keys(job_id=job_id):
                stored = await self._records.read(key.tenant, job_id)
        if stored is None:
            raise TriptychError(Reason.JOB_UNKNOWN, f"No job {job_id} is known.")
        return stored.record.job

    async def follow(
        self, job_id: str, after_sequence: int, who: Principal
    ) -> AsyncGenerator[JobEvent | Preview, None]:
        """The job's events past a sequence, until and with the one that ends it, and previews between them.

        Of a job whose log is gone there is only the latter. Raises JOB_UNKNOWN, and DRAINING when the router goes down
        first.
        """
        live = self._live(job_id, who)
        if live is not None:
            async with self._previews.watching(live), aclosing(self._follow_live(live, after_sequence)) as items:
                async for item in items:
                    yield item
            return
        known = await self.job(job_id, who)
        async for stored in self._events.read(job_id):
            if stored.event.sequence > after_sequence:
                after_sequence = stored.event.sequence
                yield stored.event
        if is_over(known) and known.last_sequence > after_sequence:
            yield end_of(known)

    async def ended(self, job_id: str, who: Principal) -> Job:
        """The job, once it is over. Raises JOB_UNKNOWN, DRAINING."""
        live = self._live(job_id, who)
        while live is not None and not live.over:
            await self._change(live)
        return live.job if live is not None else await self.job(job_id, who)

    def _live(self, job_id: str, who: Principal) -> LiveJob | None:
        live = self._jobs.get(job_id)
        return live if live is not None and who.may_see(live.tenant) else None

    async def _follow_live(self, job: LiveJob, cursor: int) -> AsyncGenerator[JobEvent | Preview, None]:
        revision = 0
        shown: Preview | None = None
        while True:
            waiting = job.after(cursor)
            if waiting is None:
                # Too far behind for what is in memory.
                before = cursor
                async for stored in self._events.read(job.job_id, revision):
                    revision = stored.revision
                    if stored.event.sequence > cursor:
                        cursor = stored.event.sequence
                        yield stored.event
                if cursor == before:
                    cursor = job.recent[0].event.sequence - 1 if job.recent else job.job.last_sequence
                continue
            for stored in waiting:
                cursor, revision = stored.event.sequence, stored.revision
                yield stored.event
            if not waiting:
                if job.over:
                    return
                if job.preview is not None and job.preview is not shown:
                    shown = job.preview
                    yield shown
                    continue
                await self._change(job)

    async def _change(self, job: LiveJob) -> None:
        if self._closing.is_set():
            raise going_down()
        await job.change()
