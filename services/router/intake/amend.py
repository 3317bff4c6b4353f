"""Changes jobs that were accepted: in place while they are denoised or wait for it, as a new job once they are done."""

import asyncio
import time

import structlog

from services.router.access.quotas import Quotas
from services.router.core.events import JobAmendRequested
from services.router.core.job import Stage, Task
from services.router.driver import Driver
from services.router.ids import check_request_id
from services.router.intake.intake import Intake, digest_of
from services.router.intake.refusal import refusal
from services.router.jobs import JobTable, LiveJob, job_request
from services.router.pricing import amended, stage_seconds
from services.router.store.recorders import Recorders
from services.router.store.records import JobStore
from services.router.store.retention import Retention
from triptych.catalog import Catalog
from triptych.durations import seconds_of
from triptych.errors import Reason, TriptychError, Violation, invalid
from triptych.exchange import Exchange
from triptych.v1.job_pb2 import (
    ATTACHMENT_ROLE_CONTROL_IMAGE,
    Amendment,
    Job,
    JobAmended,
    JobEvent,
    JobRecord,
    JobSpec,
    JobState,
)
from triptych.v1.router_service_pb2 import AmendJobRequest
from triptych.v1.tensor_pb2 import DataRef

log = structlog.get_logger()

_EXISTS_TIMEOUT_S = 30.0


class Amend:
    """The way of a change from its client to the scheduler, the denoiser and the job's log."""

    def __init__(
        self,
        catalog: Catalog,
        exchange: Exchange,
        driver: Driver,
        intake: Intake,
        jobs: JobTable,
        recorders: Recorders,
        records: JobStore,
        quotas: Quotas,
        retention: Retention,
    ) -> None:
        self._retention = retention
        self._catalog = catalog
        self._exchange = exchange
        self._driver = driver
        self._intake = intake
        self._jobs = jobs
        self._recorders = recorders
        self._records = records
        self._quotas = quotas

    async def job(self, tenant: str, job_id: str, amendment: Amendment, request_id: str) -> Job:
        """The tenant's job as amended, or the one that refines it. Raises what `RouterService.AmendJob` lists.

        A change that was begun is carried through if the caller goes.
        """
        check_request_id(request_id)
        if amendment.WhichOneof("change") is None:
            raise invalid(Violation("amendment", "must say finish_now, or a step_count"))
        if amendment.HasField("step_count") and amendment.step_count < 1:
            raise invalid(Violation("amendment.step_count", "must be 1 or more; finish_now ends it early"))
        changing = asyncio.get_running_loop().create_task(self._change(tenant, job_id, amendment, request_id))
        # Whoever awaits it may have gone.
        changing.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(changing)

    async def _change(self, tenant: str, job_id: str, amendment: Amendment, request_id: str) -> Job:
        live = self._jobs.get(job_id)
        if live is None or not live.durable:
            stored = await self._records.read(tenant, job_id)
            if stored is None:
                raise TriptychError(Reason.JOB_UNKNOWN, f"No job {job_id} is known.")
            return await self._change_ended(stored.record, amendment, request_id)
        async with live.amending:
            if _is_repeated(live.record, amendment, request_id):
                return live.snapshot()
            if live.over or self._is_denoised(live):
                return await self._change_ended(live.record, amendment, request_id)
            return await self._change_live(live, amendment, request_id)

    async def _change_live(self, live: LiveJob, amendment: Amendment, request_id: str) -> Job:
        task = Task(live.job_id, Stage.DENOISE)
        step_count = self._step_count(live, amendment)
        estimate = amended(live.job.estimate, live.spec, step_count)
        spec = _with_steps(live.spec, step_count)
        request = job_request(live.job_id, live.job.tenant, spec, stage_seconds(estimate))
        self._quotas.check_change(live, request.seconds.total_s, self._jobs)
        live.verdict = None
        self._driver.handle(JobAmendRequested(request))
        verdict = live.verdict
        if verdict is None:
            # It ended just now.
            while not live.over:
                await live.change()
            return await self._change_ended(live.record, amendment, request_id)
        if not verdict.admitted:
            log.info("amendment_refused", job_id=live.job_id, reason=verdict.reason)
            raise refusal(verdict, seconds_of(estimate.total))
        live.amend(spec, request)
        told = await self._driver.calls.amend(task, verdict.rank, amendment)
        if told is not None and told != step_count:
            step_count = told
            live.amend(_with_steps(spec, told), request)
        log.info("job_amended", job_id=live.job_id, step_count=step_count, rank=verdict.rank)
        event = JobAmended(
            amendment=amendment,
            estimate=estimate,
            rank=verdict.rank,
            step_count=step_count,
            request_id=request_id,
        )
        logged = JobEvent(amended=event)
        self._recorders.of(live).write(logged)
        while not live.over and not 0 < logged.sequence <= live.job.last_sequence:
            await live.change()
        return live.snapshot()

    async def _change_ended(self, record: JobRecord, amendment: Amendment, request_id: str) -> Job:
        ended = JobRecord()
        ended.CopyFrom(record)
        job = ended.job
        if job.state in (JobState.JOB_STATE_FAILED, JobState.JOB_STATE_CANCELLED):
            how = "failed" if job.state == JobState.JOB_STATE_FAILED else "was cancelled"
            raise TriptychError(Reason.JOB_ENDED, f"The job {how}; there is nothing to go on from: submit it again.")
        if _is_repeated(ended, amendment, request_id) or amendment.step_count <= job.spec.step_count:
            # It has run as many steps.
            return job
        self._check_step_count(job.spec, amendment.step_count)
        digest = digest_of(AmendJobRequest(job_id=job.job_id, amendment=amendment))
        spec = _with_steps(job.spec, amendment.step_count)
        spec.ClearField("deadline")
        encoded = await self._check_kept(ended)
        return await self._intake.refine(ended, spec, encoded, request_id, digest)

    async def _check_kept(self, record: JobRecord) -> bool:
        """Whether the job's conditioning is kept still. Raises LATENTS_GONE, INPUT_GONE."""
        spec = record.job.spec
        if len(record.latents) < spec.output_count or not await self._all_kept([each.data for each in record.latents]):
            raise TriptychError(
                Reason.LATENTS_GONE, "The job's latents are not kept any more: submit it again with more steps."
            )
        encoded = await self._all_kept([each.data for each in record.conditioning]) and bool(record.conditioning)
        control = any(each.role == ATTACHMENT_ROLE_CONTROL_IMAGE for each in spec.attachments)
        if control or (spec.attachments and not encoded):
            raise TriptychError(
                Reason.INPUT_GONE, "The job's pictures are not kept any more: submit it again with more steps."
            )
        return encoded

    async def _all_kept(self, refs: list[DataRef]) -> bool:
        if not self._retention.keep(refs, time.time()):
            return False
        async with asyncio.timeout(_EXISTS_TIMEOUT_S):
            return all(await asyncio.gather(*(self._exchange.exists(ref) for ref in refs)))

    def _is_denoised(self, live: LiveJob) -> bool:
        return all(live.latents(index) is not None for index in range(live.spec.output_count))

    def _step_count(self, live: LiveJob, amendment: Amendment) -> int:
        """Steps that the job is to run. To finish now is as many as are known to be done, and at least one."""
        if amendment.HasField("step_count"):
            self._check_step_count(live.spec, amendment.step_count)
            return int(amendment.step_count)
        return max(1, min(int(live.job.progress.step), int(live.spec.step_count)))

    def _check_step_count(self, spec: JobSpec, step_count: int) -> None:
        model = self._catalog.models.get(spec.model)
        if model is None:
            raise TriptychError(Reason.MODEL_UNKNOWN, f"The job's model {spec.model!r} is not served here any more.")
        most = model.limits.max_step_count
        if not 1 <= step_count <= most:
            raise invalid(Violation("amendment.step_count", f"must be 1 to {most}"))


def _is_repeated(record: JobRecord, amendment: Amendment, request_id: str) -> bool:
    """Whether this request has been carried out. Raises REQUEST_ID_REUSED."""
    for earlier in record.amendments:
        if request_id and earlier.request_id == request_id:
            if earlier.amendment != amendment:
                raise TriptychError(
                    Reason.REQUEST_ID_REUSED, f"Request id {request_id} was used for another change; take a new one."
                )
            return True
    return False


def _with_steps(spec: JobSpec, step_count: int) -> JobSpec:
    made = JobSpec()
    made.CopyFrom(spec)
    made.step_count = step_count
    return made
