"""Takes jobs in: each request once, checked, priced, judged, and durable before its client hears of it."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any

import structlog
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from services.router.access.principal import Principal
from services.router.access.quotas import Quotas
from services.router.config import RouterConfig
from services.router.core.actions import Verdict
from services.router.core.events import JobSubmitted
from services.router.driver import Driver
from services.router.estimates.estimator import Estimate
from services.router.going_down import going_down
from services.router.ids import check_request_id, new_job_id
from services.router.intake.appraiser import Appraiser, Priced
from services.router.intake.attendance import Attendance, Call
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
from services.router.workers.token_counts import foretold_cuts
from triptych.durations import seconds_of
from triptych.endings import is_abandoned, is_over
from triptych.errors import Reason, TriptychError
from triptych.exchange import DiskFull, ExchangeError, ExchangeUnavailable
from triptych.v1.job_pb2 import Job, JobEvent, JobQueued, JobRecord, JobSpec, JobState, TextReading

log = structlog.get_logger()

_MAX_SPEC_BYTES = 3_500_000
_NO_ROOM_RETRY_S = 5.0


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

    async def submit(self, spec: JobSpec, request_id: str, who: Principal, *, call: Call | None = None) -> Job:
        """The accepted job, or the one that this request made before.

        `call` is the GenerateMedia call that asks; without one the job goes on whatever becomes of such calls.
        Raises what `RouterService.SubmitJob` lists. A job is never left half accepted if the caller is cancelled.
        """
        self._check_open()
        check_request_id(request_id)
        if (wrong := too_large(spec, _MAX_SPEC_BYTES)) is not None:
            raise wrong

        def prepare(record: JobRecord) -> None:
            record.streamed = call is not None

        async def appraise() -> Priced:
            return await self._appraiser.appraise(spec)

        attend = partial(self._attendance.come, call=call) if call is not None else self._keep
        return await self._once(_Demand(who.tenant, request_id, digest_of(spec), appraise, prepare, attend))

    async def _once(self, demand: "_Demand") -> Job:
        self._check_open()
        key = (demand.tenant, demand.request_id or new_job_id(time.time()))
        while (earlier := self._underway.get(key)) is not None:
            # The same request, at the same time: its answer is this one's, or it left nothing and this one may try.
            await asyncio.wait([earlier])
        taking = asyncio.get_running_loop().create_task(self._take(demand))
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
            record.job.cut_texts.extend(refined.job.cut_texts)
            if encoded:
                record.conditioning.extend(refined.conditioning)

        async def appraise() -> Priced:
            return self._appraiser.appraise_tail(spec, done)

        return await self._once(_Demand(refined.job.tenant, request_id, digest, appraise, prepare, self._keep))

    async def judge(self, spec: JobSpec, who: Principal) -> tuple[Priced, Verdict, list[TextReading]]:
        """Return the job as it would run, the verdict (the tenant's quota included), and the texts that would be cut.

        Changes nothing.

        Raises what is wrong with the spec.
        """
        if (wrong := too_large(spec, _MAX_SPEC_BYTES)) is not None:
            raise wrong
        priced = await self._appraiser.appraise(spec)
        request = priced.request(new_job_id(time.time()), who.tenant)
        verdict = self._driver.scheduler.estimate_verdict(request, self._driver.clock.now_s())
        try:
            self._check_room(priced, who.tenant)
        except TriptychError as no:
            verdict = replace(verdict, admitted=False, reason=no.reason.name, retry_after_s=no.retry_after_s or 0.0)
        return priced, verdict, await foretold_cuts(self._driver.fleet, priced.spec)

    def _keep(self, job: LiveJob) -> None:
        """The job goes on without a client: one that submits what was asked for in a stream will watch it by itself."""
        if job.record.streamed and not job.over:
            self._attendance.keep(job)
            self._recorders.of(job).save()

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

    async def _take(self, demand: "_Demand") -> Job:
        known = await self._known(demand) if demand.request_id else None
        if known is not None:
            return known
        priced = await demand.price()
        job = self._admit(demand, priced)
        demand.attend(job)
        try:
            await self._recorders.of(job).accept(_queued(job, priced.estimate))
        except Conflict:
            # Another router took the same request meanwhile.
            self._take_back(job)
            raise ExchangeUnavailable("another router has this request; try again") from None
        except ExchangeUnavailable:
            # The job may be durable. Who repeats the request will get it; without an id nobody could.
            if not demand.request_id:
                self._driver.cancel(job.job_id)
            raise
        except ExchangeError as error:
            self._take_back(job)
            if isinstance(error, DiskFull):
                self._disk.note(error)
            raise
        return job.snapshot()

    async def _known(self, demand: "_Demand") -> Job | None:
        """The job that this request made before; None if there is none, or its id is free again."""
        live = self._jobs.by_request(demand.tenant, demand.request_id)
        known = await self._join(live, demand) if live is not None else None
        if known is not None:
            return known
        claimed = await self._records.claimed(demand.tenant, demand.request_id)
        if claimed is not None and self._recorders.leaves(claimed.record.job.job_id):
            self._disk.check()
            raise ExchangeUnavailable("this request's refused job is being removed; try again")
        stored = await self._records.read(demand.tenant, claimed.record.job.job_id) if claimed is not None else None
        if stored is None or is_abandoned(stored.record.job):
            return None
        if not is_over(stored.record.job):
            # Accepted by a router that was leading no more: this one has not seen it yet.
            await self._restore.take_up(stored)
            live = self._jobs.get(stored.record.job.job_id)
            if live is not None:
                return await self._join(live, demand)
        demand.check(stored.record)
        return stored.record.job

    async def _join(self, live: LiveJob, demand: "_Demand") -> Job | None:
        """The job, for one more that asked for it; None if it was cancelled because its client was gone."""
        await self._recorders.ended(live)
        if is_abandoned(live.job):
            return None
        demand.check(live.record)
        demand.attend(live)
        if not live.durable:
            await self._recorders.of(live).accepted()
        if not live.record.streamed:
            await self._recorders.saved(live)
        return live.snapshot()

    def _admit(self, demand: "_Demand", priced: Priced) -> LiveJob:
        """Ask the scheduler; what it starts, it starts at once. Raises its refusal."""
        self._check_open()
        self._check_room(priced, demand.tenant)
        now = Timestamp()
        now.GetCurrentTime()
        request = priced.request(new_job_id(seconds_of(now)), demand.tenant)
        job = LiveJob(demand.record(request.job_id, priced.spec, now), priced.spec, request)
        record = job.record
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


@dataclass(frozen=True, slots=True)
class _Demand:
    """What one call asks for: `digest` tells payloads apart.

    `prepare` completes the record of a new job; `attend` is told the job, new or known.
    """

    tenant: str
    request_id: str
    digest: bytes
    price: Callable[[], Coroutine[Any, Any, Priced]]
    prepare: Callable[[JobRecord], None]
    attend: Callable[[LiveJob], None]

    def record(self, job_id: str, spec: JobSpec, now: Timestamp) -> JobRecord:
        """The record of a new job."""
        made = JobRecord(schema_version=SCHEMA_VERSION, request_id=self.request_id, request_digest=self.digest)
        made.job.CopyFrom(Job(job_id=job_id, tenant=self.tenant, state=JobState.JOB_STATE_QUEUED))
        made.job.spec.CopyFrom(without_attachment_data(spec))
        made.job.create_time.CopyFrom(now)
        self.prepare(made)
        return made

    def check(self, record: JobRecord) -> None:
        """Raises REQUEST_ID_REUSED if the job was made of another payload."""
        if record.request_digest != self.digest:
            why = f"Request id {self.request_id} was used for another job; take a new one."
            raise TriptychError(Reason.REQUEST_ID_REUSED, why)
