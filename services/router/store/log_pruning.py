"""Makes room for the events of jobs that live: the logs of those that are over go, the oldest jobs' first."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from services.router.jobs import JobTable
from services.router.store.event_log import EventStore

log = structlog.get_logger()

_PURGED_TOGETHER = 16


class LogPruning:
    """What became of a job stays in its record. How it came to that is lost with its log, before `events_ttl_s`."""

    def __init__(self, events: EventStore, jobs: JobTable, confirm: Callable[[], Awaitable[None]]) -> None:
        self._events = events
        self._jobs = jobs
        self._confirm = confirm

    async def prune(self, share: float) -> int:
        """Forget such a share (0 to 1) of all events, or as many as jobs that are over have; see `Pruning`."""
        counts = await self._events.counts()
        living = {job.job_id for job in self._jobs}
        left = share * sum(counts.values())
        going: list[str] = []
        for job_id in sorted(counts.keys() - living):
            if left <= 0:
                break
            going.append(job_id)
            left -= counts[job_id]
        for start in range(0, len(going), _PURGED_TOGETHER):
            # Whoever leads after this one may have taken jobs that are not known here.
            await self._confirm()
            await asyncio.gather(*map(self._events.purge, going[start : start + _PURGED_TOGETHER]))
        log.warning("logs_pruned", count=len(going), kept_count=len(counts) - len(going))
        return len(going)
