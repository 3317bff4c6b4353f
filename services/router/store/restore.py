"""Takes up the jobs that an earlier router accepted and did not end."""

import asyncio

import structlog

from services.router import tries
from services.router.core.events import JobRestored
from services.router.core.job import Stage, Task
from services.router.driver import Driver
from services.router.intake.attendance import Attendance
from services.router.jobs import JobTable, LiveJob, job_request
from services.router.pricing import stage_seconds
from services.router.store.event_log import EventStore
from services.router.store.recorders import Recorders
from services.router.store.records import JobStore, StoredRecord
from services.router.store.retention import Retention
from triptych.durations import seconds_of
from triptych.endings import is_over
from triptych.exchange import Exchange, ExchangeError
from triptych.v1.job_pb2 import JobEvent, JobQueued, JobRequeued, JobSpec, JobState
from triptych.v1.job_pb2 import Stage as StageMessage
from triptych.v1.tensor_pb2 import DataRef

log = structlog.get_logger()

REASON = "ROUTER_LOST"


class Restore:
    """Reads the stored jobs, brings each up to its log, and hands it to the scheduler."""

    def __init__(
        self,
        exchange: Exchange,
        events: EventStore,
        records: JobStore,
        jobs: JobTable,
        recorders: Recorders,
        driver: Driver,
        attendance: Attendance,
        retention: Retention,
    ) -> None:
        self._attendance = attendance
        self._retention = retention
        self._taking = asyncio.Lock()
        self._exchange = exchange
        self._events = events
        self._records = records
        self._jobs = jobs
        self._recorders = recorders
        self._driver = driver

    async def run(self) -> None:
        """Take up every job that is not over, oldest first. Raises ExchangeUnavailable."""
        count = 0
        oldest_first = sorted(await self._records.keys())
        async for stored in self._records.read_all(oldest_first):
            if is_over(stored.record.job):
                self._retention.note_end(stored.record)
            else:
                await self.take_up(stored)
                count += 1
        log.info("jobs_restored", count=count, stored_count=len(oldest_first))

    async def take_up(self, stored: StoredRecord) -> None:
        """Take up one job that is not over, unless it is known. Raises ExchangeUnavailable."""
        async with self._taking:
            if self._jobs.get(stored.record.job.job_id) is None:
                await self._take_up(stored)

    async def _take_up(self, stored: StoredRecord) -> None:
        spec = await self._spec(stored)
        known = stored.record.job
        self._driver.clock.advance(seconds_of(known.create_time))
        request = job_request(known.job_id, known.tenant, spec, stage_seconds(known.estimate))
        job = LiveJob(stored.record, spec, request)
        job.revision = stored.revision
        await self._replay(job)
        self._jobs.add(job)
        recorder = self._recorders.of(job)
        if job.over:
            recorder.save()  # the log has its end, the record had not
            return
        if not job.job.last_sequence:
            queued = JobQueued(estimate=job.job.estimate, pool=job.job.pool, rank=job.job.rank)
            recorder.write(JobEvent(queued=queued))
        if job.job.state == JobState.JOB_STATE_RUNNING or job.job.stage != StageMessage.STAGE_UNSPECIFIED:
            recorder.write(JobEvent(requeued=JobRequeued(reason=REASON, tries=job.record.tries)))
        restored = await self._restored(job)
        gone = {output.index for output in job.job.outputs} - restored.decoded
        if gone:
            self._withdraw(job, gone)
        self._driver.handle(restored)
        if job.record.surrendered:
            self._driver.surrender.remove(job)
        self._attendance.miss(job.job_id)

    def _withdraw(self, job: LiveJob, outputs: set[int]) -> None:
        """Tell of outputs that are no more: they are made again."""
        log.warning("outputs_gone", job_id=job.job_id, outputs=sorted(outputs))
        requeued = JobRequeued(reason="OUTPUTS_GONE", stage=StageMessage.STAGE_DECODE, tries=job.record.tries)
        requeued.withdrawn_outputs.extend(sorted(outputs))
        self._recorders.of(job).write(JobEvent(requeued=requeued))

    async def _spec(self, stored: StoredRecord) -> JobSpec:
        """The spec with the attachments' data, which has a place of its own."""
        job = stored.record.job
        if not job.spec.attachments:
            return job.spec
        return await self._records.read_spec(job.job_id) or job.spec

    async def _replay(self, job: LiveJob) -> None:
        """Bring the record up to the log, which may be ahead of it."""
        async for stored in self._events.read(job.job_id):
            job.log_revision = stored.revision
            if stored.event.sequence > job.job.last_sequence:
                job.log(stored)
        last = await self._events.last(job.job_id)
        if last is not None and last.revision != job.log_revision:
            raise ExchangeError(f"the log of job {job.job_id} cannot be read to its end yet")

    async def _restored(self, job: LiveJob) -> JobRestored:
        outputs = {output.index for output in job.job.outputs if await self._exists(output.data)}
        latents = {each.output_index for each in job.record.latents if await self._exists(each.data)}
        for index in {each.output_index for each in job.record.latents} - latents:
            job.drop_latents(index)
        finished = {Task(job.job_id, Stage.DECODE, index) for index in outputs}
        if latents >= set(range(job.request.output_count)):
            finished.add(Task(job.job_id, Stage.DENOISE))
        if job.record.conditioning and all([await self._exists(each.data) for each in job.record.conditioning]):
            finished.add(Task(job.job_id, Stage.ENCODE))
        return JobRestored(
            request=job.request,
            rank=job.job.rank,
            pool=job.job.pool,
            attempt=job.job.attempt,
            finished=frozenset(finished),
            latents=frozenset(latents),
            tries=tuple(tries.from_message(job.job_id, each) for each in job.record.tries),
            saved=(job.record.checkpoint.output_index, job.record.checkpoint.step),
            refines=bool(job.record.refined_latents),
        )

    async def _exists(self, ref: DataRef) -> bool:
        async with asyncio.timeout(30.0):
            return await self._exchange.exists(ref)
