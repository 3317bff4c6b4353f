"""Takes jobs in: each request once, checked, priced, judged, and durable before its client hears of it."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from hashlib import blake2b
from typing import Any, TypeAlias

import structlog
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from services.router.access.principal import Principal
from services.router.access.quotas import Quotas
from services.router.config import RouterConfig
from services.router.core.actions import Verdict
from services.router.core.estimator import Estimate
from services.router.core.events import JobSubmitted
from services.router.driver import Driver
from services.router.going_down import going_down
from services.router.ids import check_request_id, new_job_id
from services.router.intake.appraiser import Appraiser, Priced
from services.router.intake.attendance import Attendance
from services.router.intake.refusal import refusal
from services.router.intake.validation import too_large
from services.router.jobs import JobTable, LiveJob, attachment_bytes
from services.router.pricing import estimate_message
from services.router.store.compare_and_set import Conflict
from services.router.store.disk import Disk
from services.router.store.recorders import Recorders
from services.router.store.records import SCHEMA_VERSION, JobStore
from services.router.store.restore import Restore
from services.router.store.room import Room
from triptych.durations import seconds_of
from triptych.endings import is_over
from triptych.errors import Reason, TriptychError
from triptych.exchange import DiskFull, ExchangeError, ExchangeUnavailable
from triptych.v1.job_pb2 import Job, JobEvent, JobQueued, JobRecord, JobSpec, JobState

log = structlog.get_logger()

_MAX_SPEC_BYTES = 3_500_000
_NO_ROOM_RETRY_S = 5.0

_Pricer: TypeAlias = Callable[[], Coroutine[Any, Any, Priced]]
_Preparer: TypeAlias = Callable[[JobRecord], None]


class Intake:
    """The way of a job from its client to the scheduler."""

    def __init__(
        self,
        config: RouterConfig,
        appraiser: Appraiser,
        driver: Driver,
        jobs: JobTable,
        recorders: Recorders,
        records: JobStore,
        quotas: Quotas,
        attendance: Attendance,
        restore: Restore,
        room: Room,
        disk: Disk,
    ) -> None:
        self._attendance = attendance
        self._restore = restore
        self._room = room
        self._disk = disk
        self._max_attachment_bytes = config.max_attachment_bytes
        self._appraiser = appraiser
        self._driver = driver
        self._jobs = jobs
        self._recorders = recorders
        self._records = records
        self._quotas = quotas
        self._underway: dict[tuple[str, str], asyncio.Task[Job]] = {}

    async def submit(self, spec: JobSpec, request_id: str, who: Principal, *, streamed: bool = False) -> Job:
        """The accepted job, or the one that this request made before. `streamed`: the job belongs to the call.

        Raises what `RouterService.SubmitJob` lists. A job is never left half accepted if the caller is cancelled.
        """
        self._check_open()
        check_request_id(request_id)
        if (wrong := too_large(spec, _MAX_SPEC_BYTES)) is not None:
            raise wrong

        def prepare(record: JobRecord) -> None:
            record.streamed = streamed

        job = await self._once(who.tenant, lambda: self._appraiser.appraise(spec), request_id, digest_of(spec), prepare)
        if not streamed:
            self._release(job.job_id)
        return job

    async def _once(self, tenant: str, pricer: _Pricer, request_id: str, digest: bytes, prepare: _Preparer) -> Job:
        self._check_open()
        key = (tenant, request_id or new_job_id(time.time()))
        while (earlier := self._underway.get(key)) is not None:
            # The same request, at the same time: its answer is this one's, or it left nothing and this one may try.
            await asyncio.wait([earlier])
        taking = asyncio.get_running_loop().create_task(self._take(tenant, pricer, request_id, digest, prepare))
        self._underway[key] = taking
        taking.add_done_callback(lambda _: self._underway.pop(key))
        # Whoever awaits it may have gone.
        taking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(taking)

    async def refine(self, refined: JobRecord, spec: JobSpec, encoded: bool, request_id: str, digest: bytes) -> Job:
        """A new job that goes on from the latents of one that has succeeded, or the one that this request made before.

        `spec` is the old job's with more steps; `encoded`: the old conditioning is there still.
        """
        done = refined.job.spec.step_count

        def prepare(record: JobRecord) -> None:
            record.job.refines_job_id = refined.job.job_id
            record.refined_latents.extend(refined.latents)
            record.refined_step_count = done
            if encoded:
                record.conditioning.extend(refined.conditioning)

        async def appraise() -> Priced:
            return self._appraiser.appraise_tail(spec, done)

        return await self._once(refined.job.tenant, appraise, request_id, digest, prepare)

    async def judge(self, spec: JobSpec, who: Principal) -> tuple[Estimate, Verdict]:
        """Price and verdict, the tenant's quota included; changes nothing. Raises what is wrong with the spec."""
        if (wrong := too_large(spec, _MAX_SPEC_BYTES)) is not None:
            raise wrong
        priced = await self._appraiser.appraise(spec)
        request = priced.request(new_job_id(time.time()), who.tenant)
        verdict = self._driver.scheduler.estimate_verdict(request, time.time())
        try:
            self._check_room(priced, who.tenant)
        except TriptychError as no:
            verdict = replace(verdict, admitted=False, reason=no.reason.name, retry_after_s=no.retry_after_s or 0.0)
        return priced.estimate, verdict

    def _release(self, job_id: str) -> None:
        """A client that submits what it had asked for in a stream will watch it by itself."""
        live = self._jobs.get(job_id)
        if live is not None and live.record.streamed and not live.over:
            live.record.streamed = False
            self._recorders.of(live).save()
            self._attendance.release(job_id)

    def _check_open(self) -> None:
        if self._driver.draining:
            raise going_down()

    def _check_room(self, priced: Priced, tenant: str) -> None:
        """Return if there is room, whatever the scheduler says.

        Raises DISK_FULL, STORE_FULL, QUEUE_FULL, QUOTA_EXCEEDED.
        """
        self._disk.check()
        self._room.check()
        size = attachment_bytes(priced.spec)
        if size and self._jobs.attachment_bytes + size > self._max_attachment_bytes:
            why = "The attachments of waiting jobs take all the room there is; try again later."
            raise TriptychError(Reason.QUEUE_FULL, why, retry_after_s=_NO_ROOM_RETRY_S)
        self._quotas.check_room(tenant, priced.estimate.seconds.total_s, self._jobs)

    async def _take(self, tenant: str, pricer: _Pricer, request_id: str, digest: bytes, prepare: _Preparer) -> Job:
        known = await self._known(request_id, digest, tenant) if request_id else None
        if known is not None:
            return known
        priced = await pricer()
        job = self._admit(tenant, priced, request_id, digest, prepare)
        try:
            await self._recorders.of(job).accept(_queued(job, priced.estimate))
        except Conflict:
            # Another router took the same request meanwhile.
            self._take_back(job)
            raise ExchangeUnavailable("another router has this request; try again") from None
        except ExchangeUnavailable:
            # The job may be durable. Who repeats the request will get it; without an id nobody could.
            if not request_id:
                self._driver.cancel(job.job_id)
            raise
        except ExchangeError as error:
            self._take_back(job)
            if isinstance(error, DiskFull):
                self._disk.note(error)
            raise
        return job.snapshot()

    async def _known(self, request_id: str, digest: bytes, tenant: str) -> Job | None:
        """The job that this request made before."""
        job = self._jobs.by_request(tenant, request_id)
        if job is not None:
            _check_digest(request_id, digest, job.record.request_digest)
            if not job.durable:
                await self._recorders.of(job).accepted()
            return job.snapshot()
        claimed = await self._records.claimed(tenant, request_id)
        if claimed is None:
            return None
        _check_digest(request_id, digest, claimed.record.request_digest)
        if self._recorders.leaves(claimed.record.job.job_id):
            self._disk.check()
            raise ExchangeUnavailable("this request's refused job is being removed; try again")
        stored = await self._records.read(tenant, claimed.record.job.job_id)
        if stored is None:
            return None
        if not is_over(stored.record.job):
            # Accepted by a router that was leading no more: this one has not seen it yet.
            await self._restore.take_up(stored)
        return stored.record.job

    def _admit(self, tenant: str, priced: Priced, request_id: str, digest: bytes, prepare: _Preparer) -> LiveJob:
        """Ask the scheduler; what it starts, it starts at once. Raises its refusal."""
        self._check_open()
        self._check_room(priced, tenant)
        now = Timestamp()
        now.GetCurrentTime()
        request = priced.request(new_job_id(seconds_of(now)), tenant)
        record = JobRecord(schema_version=SCHEMA_VERSION, request_id=request_id, request_digest=digest)
        record.job.CopyFrom(Job(job_id=request.job_id, tenant=tenant, state=JobState.JOB_STATE_QUEUED))
        record.job.spec.CopyFrom(without_attachment_data(priced.spec))
        record.job.create_time.CopyFrom(now)
        prepare(record)
        job = LiveJob(record, priced.spec, request)
        self._jobs.add(job)
        submitted = JobSubmitted(request, encoded=bool(record.conditioning), refines=bool(record.refined_latents))
        self._driver.handle(submitted)
        verdict = job.verdict
        assert verdict is not None, "the scheduler judges a job when it is submitted"
        if not verdict.admitted:
            self._jobs.remove(job)
            if verdict.reason == Reason.NO_WORKER.name:
                self._appraiser.check_heard()
            log.info("job_refused", job_id=job.job_id, model=request.model, reason=verdict.reason, pool=verdict.pool)
            raise refusal(verdict, priced.estimate.seconds.total_s)
        record.job.estimate.CopyFrom(estimate_message(priced.estimate))
        record.job.pool, record.job.rank = verdict.pool, verdict.rank
        log.info("job_admitted", job_id=job.job_id, model=request.model, pool=verdict.pool, rank=verdict.rank)
        return job

    def _take_back(self, job: LiveJob) -> None:
        """The job was admitted and could not be stored."""
        self._driver.cancel(job.job_id)
        self._recorders.drop(job)
        self._jobs.remove(job)


def digest_of(asked: Message) -> bytes:
    """BLAKE2b-256 of what a client asked for."""
    return blake2b(asked.SerializeToString(deterministic=True), digest_size=32).digest()


def without_attachment_data(spec: JobSpec) -> JobSpec:
    """The spec as clients see it again: attachments by role and type only."""
    bare = JobSpec()
    bare.CopyFrom(spec)
    for attachment in bare.attachments:
        attachment.data = b""
    return bare


def _queued(job: LiveJob, estimate: Estimate) -> JobEvent:
    queued = JobQueued(estimate=estimate_message(estimate), pool=job.job.pool, rank=job.job.rank)
    return JobEvent(queued=queued)


def _check_digest(request_id: str, digest: bytes, earlier: bytes) -> None:
    if digest != earlier:
        raise TriptychError(
            Reason.REQUEST_ID_REUSED, f"Request id {request_id} was used for another job; take a new one."
        )
