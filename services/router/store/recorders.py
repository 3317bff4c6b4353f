"""The recorders of all jobs in memory."""

import asyncio
from collections.abc import Callable

from services.router.jobs import LiveJob
from services.router.leadership.mandate import Mandate
from services.router.store.event_log import EventStore
from services.router.store.recorder import Recorder
from services.router.store.records import JobStore


class Recorders:
    """One recorder a job, made when first asked for."""

    def __init__(
        self,
        events: EventStore,
        records: JobStore,
        mandate: Mandate,
        on_over: Callable[[LiveJob], None],
        scarce: Callable[[], bool],
    ) -> None:
        self._events = events
        self._records = records
        self._mandate = mandate
        self._on_over = on_over
        self._scarce = scarce
        self._recorders: dict[str, Recorder] = {}
        self._dropped: dict[str, Recorder] = {}

    def of(self, job: LiveJob) -> Recorder:
        """The job's only writer."""
        recorder = self._recorders.get(job.job_id)
        if recorder is None:
            recorder = Recorder(job, self._events, self._records, self._mandate, self._over, self._scarce)
            self._recorders[job.job_id] = recorder
        return recorder

    async def saved(self, job: LiveJob) -> None:
        """Wait until the job's record is written as it is now. Raises ExchangeUnavailable."""
        recorder = self._recorders.get(job.job_id)
        if recorder is not None:
            await recorder.saved()

    async def ended(self, job: LiveJob) -> None:
        """If the job's end is on its way into the store, wait until it is there. Raises ExchangeUnavailable."""
        recorder = self._recorders.get(job.job_id)
        if recorder is not None and recorder.ending:
            await recorder.saved()

    def drop(self, job: LiveJob) -> None:
        """The job is recorded, or was not accepted."""
        recorder = self._recorders.pop(job.job_id, None)
        self._dropped = {job_id: each for job_id, each in self._dropped.items() if not each.idle}
        if recorder is not None and not recorder.idle:
            self._dropped[job.job_id] = recorder

    def leaves(self, job_id: str) -> bool:
        """Whether what there is of a job that was not accepted is about to go."""
        return job_id in self._dropped and not self._dropped[job_id].idle

    async def close(self, timeout_s: float) -> None:
        """Let them write for a while, then stop them."""
        recorders = [*self._recorders.values(), *self._dropped.values()]
        waiting = [recorder.settle() for recorder in recorders]
        if waiting:
            await asyncio.wait([asyncio.ensure_future(each) for each in waiting], timeout=timeout_s)
        for recorder in recorders:
            recorder.close()

    def _over(self, job: LiveJob) -> None:
        self._on_over(job)
        self.drop(job)
