"""Drives the scheduler with what really happens, and does what it says."""

import asyncio
import time
from collections import deque

import structlog

from services.router import tries
from services.router.clock import Clock
from services.router.config import RouterConfig
from services.router.core.actions import (
    Action,
    AdmitJob,
    AmendJob,
    FinishJob,
    GiveBack,
    RejectAmendment,
    RejectJob,
    RequeueJob,
    StartTask,
    StopTask,
)
from services.router.core.config import SchedulerConfig
from services.router.core.events import ConfigReloaded, Event, JobCancelRequested, TaskSaved, Ticked, WorkerReturned
from services.router.core.job import Stage
from services.router.core.scheduler import Scheduler
from services.router.jobs import JobTable, LiveJob
from services.router.leadership.mandate import Mandate
from services.router.pricing import Pricing
from services.router.reads.decisions import decision, job_of
from services.router.reads.fleet_watch import FleetWatch
from services.router.stages import TO_PROTO
from services.router.store.disk import Disk
from services.router.store.recorders import Recorders
from services.router.store.surrender import Surrender
from services.router.workers.calls import StageCalls
from services.router.workers.fleet import Fleet
from services.router.workers.links import WorkerLinks
from triptych.errors import Reason, TriptychError, from_status, to_status
from triptych.exchange import Exchange
from triptych.v1 import job_pb2
from triptych.v1.job_pb2 import JobCancelled, JobEvent, JobFailed, JobRequeued, JobSucceeded

log = structlog.get_logger()

# Tried again, these mean more to a client than that it was in vain.
_ENDS_AS_IT_IS = frozenset({Reason.OUT_OF_MEMORY})


class Driver:
    """The scheduler's only caller. `handle` takes one event in and performs the actions, without awaiting anything.

    `draining`: nothing new is started. `clock` is the scheduler's.
    """

    def __init__(
        self,
        config: RouterConfig,
        mandate: Mandate,
        pricing: Pricing,
        jobs: JobTable,
        recorders: Recorders,
        exchange: Exchange,
        disk: Disk,
    ) -> None:
        self.draining = False
        self.clock = Clock()
        self.scheduler = Scheduler(config.scheduler)
        self.fleet = Fleet(
            config.worker_timeout_s,
            self.handle,
            lambda worker_id: self.calls.drop_worker(worker_id),
            pricing.learn,
            pricing.hear,
            WorkerLinks(config.worker_tls, config.worker_token),
            lambda: self.scheduler.config.absence_grace_s,
        )
        self.calls = StageCalls(config, mandate, self.fleet, pricing, recorders, self.handle, exchange, disk)
        self.watch = FleetWatch()
        self.surrender = Surrender(exchange, jobs, recorders, mandate.confirm)
        self._jobs = jobs
        self._recorders = recorders
        self._events: deque[Event] = deque()
        self._handling = False
        self._timer: asyncio.TimerHandle | None = None

    def handle(self, event: Event) -> None:
        """Tell the scheduler, and do what it says. Events that come of the doing are handled after it."""
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                next_event = self._events.popleft()
                for action in self.scheduler.handle(next_event, self.clock.now_s()):
                    self._perform(action)
                if isinstance(next_event, TaskSaved):
                    self._acquit(next_event.task.job_id)
                elif isinstance(next_event, WorkerReturned):
                    for job in self._jobs:
                        self._acquit(job.job_id)
        finally:
            self._handling = False
        self._set_timer()

    def reload(self, config: SchedulerConfig) -> None:
        """Go on with other settings of the scheduler."""
        self.handle(ConfigReloaded(config))
        pools = [pool.name for pool in config.pools]
        log.info("scheduler_reloaded", policy=config.policy, kappa=config.kappa, pools=pools)

    def cancel(self, job_id: str, reason: str = "") -> None:
        """Cancel a job; one that is over stays as it is. `reason`: why, if nobody asked for it."""
        self.handle(JobCancelRequested(job_id, reason))

    async def drain(self, timeout_s: float) -> None:
        """Start nothing new; have what runs handed back, for so long at most, then stop it."""
        self.draining = True
        if timeout_s > 0:
            await self.calls.hand_back()
        if not await self.calls.idle(timeout_s):
            log.warning("drain_cut_short", timeout_s=timeout_s)
        self.calls.stop_all()
        await self.surrender.close()
        if self._timer is not None:
            self._timer.cancel()

    def _perform(self, action: Action) -> None:
        if self.watch.watched:
            self.watch.tell(decision(action, self._pool_of(action), self._wait_s(action), time.time()))
        match action:
            case (
                AdmitJob(job_id, verdict)
                | RejectJob(job_id, verdict)
                | AmendJob(job_id, verdict)
                | RejectAmendment(job_id, verdict)
            ):
                job = self._jobs.get(job_id)
                if job is not None:
                    job.verdict = verdict
            case StartTask(task):
                job = self._jobs.get(task.job_id)
                if job is not None and not self.draining:
                    self.calls.start(job, action)
            case StopTask(task):
                self.calls.stop(task)
            case RequeueJob():
                self._requeue(action)
            case GiveBack():
                self._give_back(action)
            case FinishJob():
                self._finish(action)

    def _pool_of(self, action: Action) -> str:
        job = self._jobs.get(job_of(action))
        if job is None:
            return ""
        return job.verdict.pool if job.verdict is not None else job.job.pool

    def _wait_s(self, action: Action) -> float | None:
        """Predicted seconds until the denoise starts of a job that is let in, or changed."""
        job = self.scheduler.job(action.job_id) if isinstance(action, AdmitJob | AmendJob) else None
        return job.wait_s if job is not None else None

    def _requeue(self, action: RequeueJob) -> None:
        job = self._jobs.get(action.job_id)
        if job is not None:
            log.info("job_requeued", job_id=action.job_id, stage=action.stage.value, reason=action.reason)
            requeued = JobRequeued(reason=action.reason, stage=TO_PROTO[action.stage], tries=self._tries(job.job_id))
            self._recorders.of(job).write(JobEvent(attempt=action.attempt, requeued=requeued))

    def _give_back(self, action: GiveBack) -> None:
        job = self._jobs.get(action.job_id)
        if job is None:
            return
        log.info("job_gives_room", job_id=action.job_id, stage=action.stage.value, taker=action.taker)
        if action.stage is Stage.DENOISE:
            job.surrender_latents()
        requeued = JobRequeued(
            reason="MADE_ROOM",
            stage=TO_PROTO[action.stage],
            tries=self._tries(job.job_id),
            withdrawn_outputs=sorted(action.outputs),
        )
        recorder = self._recorders.of(job)
        recorder.write(JobEvent(attempt=action.attempt, requeued=requeued))
        recorder.save()
        self.surrender.remove(job)

    def _acquit(self, job_id: str) -> None:
        """What was tried in vain before may count no longer: the job got further, or a worker had not died."""
        job = self._jobs.get(job_id)
        if job is not None and list(job.record.tries) != (tries := self._tries(job_id)):
            del job.record.tries[:]
            job.record.tries.extend(tries)
            self._recorders.of(job).save()

    def _tries(self, job_id: str) -> list[job_pb2.Tries]:
        return [tries.to_message(each) for each in self.scheduler.tries(job_id)]

    def _finish(self, action: FinishJob) -> None:
        job = self._jobs.get(action.job_id)
        if job is None:
            return
        log.info("job_ended", job_id=action.job_id, outcome=action.outcome, reason=action.reason)
        match action.outcome:
            case "succeeded":
                event = JobEvent(succeeded=JobSucceeded())
            case "cancelled":
                event = JobEvent(cancelled=JobCancelled(reason=action.reason))
            case _:
                event = JobEvent(failed=JobFailed(error=to_status(_failure(job, action))))
        self._recorders.of(job).write(event)

    def _set_timer(self) -> None:
        """Come back when the scheduler has something to release."""
        at_s = self.scheduler.next_tick_s()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_s is not None and not self.draining:
            delay_s = max(0.0, at_s - self.clock.now_s())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.handle, Ticked())


def _failure(job: LiveJob, action: FinishJob) -> TriptychError:
    """Why the job failed: in the worker's own words if its last error is the reason."""
    if job.error is not None:
        error = from_status(job.error)
        if error.reason.name == action.reason:
            return error
    if action.reason == Reason.TOO_MANY_ATTEMPTS.name and job.error is not None:
        last = from_status(job.error)
        if last.reason in _ENDS_AS_IT_IS:
            return last
    known = action.reason in Reason.__members__
    return TriptychError(Reason[action.reason] if known else Reason.INTERNAL, action.blame or action.reason)
