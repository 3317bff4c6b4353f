"""Bundles that a job gives back before it is over, so that others have room."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from services.router.jobs import LiveJob
from services.router.leadership.lease import Deposed
from services.router.store.named import bundles_of
from services.router.store.recorders import Recorders
from triptych.exchange import Exchange, ExchangeError
from triptych.tasks import end
from triptych.v1.tensor_pb2 import DataRef

log = structlog.get_logger()


class Surrender:
    """Removes them once it is durable that the job has them no more: whoever leads by then does not count on them.

    What cannot be removed now is left to `Retention`.
    """

    def __init__(self, exchange: Exchange, recorders: Recorders, confirm: Callable[[], Awaitable[None]]) -> None:
        self._exchange = exchange
        self._recorders = recorders
        self._confirm = confirm
        self._removing: set[asyncio.Task[None]] = set()

    def remove(self, job: LiveJob, refs: Sequence[DataRef]) -> None:
        """Remove these as soon as what was written and saved of the job is stored; returns at once."""
        task = asyncio.get_running_loop().create_task(self._remove(job, refs))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    async def close(self) -> None:
        """Remove nothing more."""
        await end(*self._removing)

    async def _remove(self, job: LiveJob, refs: Sequence[DataRef]) -> None:
        await self._recorders.of(job).settle()
        named = {ref.bundle_id for ref in bundles_of(job.record)}
        unnamed = [ref for ref in refs if ref.bundle_id not in named]
        try:
            await self._confirm()
            # Not over another connection: by then another router may lead.
            await asyncio.gather(*(self._exchange.delete(ref, persist=False) for ref in unnamed))
        except (ExchangeError, Deposed) as error:
            log.warning("bundles_left", job_id=job.job_id, error=str(error))
            return
        log.info("room_made", job_id=job.job_id, count=len(unnamed), bytes=sum(ref.byte_size for ref in unnamed))
