"""Bundles that a job gives back before it is over, so that others have room."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from services.router.jobs import JobTable, LiveJob
from services.router.leadership.lease import Deposed
from services.router.store.named import bundles_of
from services.router.store.recorders import Recorders
from triptych.exchange import Exchange, ExchangeError
from triptych.tasks import end
from triptych.v1.tensor_pb2 import DataRef

log = structlog.get_logger()

_RETRY_S = 1.0


class Surrender:
    """Removes them once it is durable that the job has them no more: whoever leads by then does not count on them.

    What another job goes on from is left to `Retention`.
    """

    def __init__(
        self, exchange: Exchange, jobs: JobTable, recorders: Recorders, confirm: Callable[[], Awaitable[None]]
    ) -> None:
        self._exchange = exchange
        self._jobs = jobs
        self._recorders = recorders
        self._confirm = confirm
        self._removing: set[asyncio.Task[None]] = set()

    def remove(self, job: LiveJob) -> None:
        """Remove what the job's record calls surrendered as soon as all of it is stored; returns at once."""
        task = asyncio.get_running_loop().create_task(self._remove(job))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    async def close(self) -> None:
        """Remove nothing more."""
        await end(*self._removing)

    async def _remove(self, job: LiveJob) -> None:
        while not job.over:
            # An output may have been told of, and withdrawn, at once: only its log knows all.
            await self._recorders.of(job).settle()
            refs = list(job.record.surrendered)
            try:
                await self._remove_unnamed(refs)
            except Deposed as error:
                log.warning("bundles_left", job_id=job.job_id, error=str(error))
                return
            except ExchangeError as error:
                log.warning("bundles_left_for_now", job_id=job.job_id, error=str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            if not job.over:
                self._forget(job, refs)
            log.info("room_made", job_id=job.job_id, count=len(refs), bytes=sum(ref.byte_size for ref in refs))
            return

    async def _remove_unnamed(self, refs: Sequence[DataRef]) -> None:
        await self._confirm()
        named = {ref.bundle_id for job in self._jobs for ref in bundles_of(job.record)}
        unnamed = [ref for ref in refs if ref.bundle_id not in named]
        # Not over another connection: by then another router may lead.
        await asyncio.gather(*(self._exchange.delete(ref, persist=False) for ref in unnamed))

    def _forget(self, job: LiveJob, refs: Sequence[DataRef]) -> None:
        removed = {ref.bundle_id for ref in refs}
        left = [ref for ref in job.record.surrendered if ref.bundle_id not in removed]
        del job.record.surrendered[:]
        job.record.surrendered.extend(left)
        self._recorders.of(job).save()
