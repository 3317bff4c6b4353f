"""Makes room for the records of jobs that live: those of jobs that are over for long go, the oldest jobs' first."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

import structlog

from services.router.jobs import JobTable
from services.router.store.records import JobStore
from triptych.durations import seconds_of
from triptych.endings import is_over
from triptych.v1.job_pb2 import JobRecord

log = structlog.get_logger()

# Of the oldest records, at once.
_MAX_READ = 1024
_FORGOTTEN_TOGETHER = 16


class RecordPruning:
    """A job whose files and latents are kept no more, `kept_s` after its end, is forgotten before `jobs_ttl_s`."""

    def __init__(
        self, records: JobStore, jobs: JobTable, kept_s: float, confirm: Callable[[], Awaitable[None]]
    ) -> None:
        self._records = records
        self._jobs = jobs
        self._kept_s = kept_s
        self._confirm = confirm
        # Until when there is nothing to forget: a full store is not listed again and again in vain.
        self._idle_until_s = 0.0

    async def prune(self, share: float) -> int:
        """Forget such a share (0 to 1) of all jobs, or as many as may be; see `Pruning`."""
        if time.time() < self._idle_until_s:
            return 0
        living = {job.job_id for job in self._jobs}
        keys = sorted(await self._records.keys())
        oldest = [key for key in keys if key.job_id not in living][:_MAX_READ]
        ended = [each.record async for each in self._records.read_all(oldest) if is_over(each.record.job)]
        old_s = time.time() - self._kept_s
        going = [record for record in ended if seconds_of(record.job.end_time) <= old_s][: math.ceil(share * len(keys))]
        if ended and not going:
            self._idle_until_s = min(seconds_of(record.job.end_time) for record in ended) + self._kept_s
        await self._forget(going)
        return len(going)

    async def _forget(self, going: list[JobRecord]) -> None:
        for start in range(0, len(going), _FORGOTTEN_TOGETHER):
            await self._confirm()
            await asyncio.gather(*map(self._records.prune, going[start : start + _FORGOTTEN_TOGETHER]))
        if going:
            log.warning("jobs_forgotten", count=len(going))
