"""The scheduler: events in, actions out, nothing else.

Theory of operation
===================

A driver (the live router, or the simulator) reports what happens as events; `Scheduler.handle` takes one in and returns
what is to be done, in order. Nothing else changes the state. There is no I/O, no clock and no randomness here: the same
events at the same times give the same actions.

A job passes three stages. Its prompt is encoded once, into conditioning; a denoise makes the latents of its outputs,
one after the other; a decode makes the pixels of each output. Each of these is a task, which one worker runs. What is
durable of a job are facts (`jobs.Job`): conditioning, latents, outputs. A finished task adds one, a result that left
the store removes one, a restored job begins with those that are left. `Job.startable` derives from them which tasks may
start, so no state has to be kept in step with another.

Three questions are asked of every job, each answered in a module of its own.

When is it due? `ranking` gives it one number at admission: its arrival, plus κ times its own estimated seconds, or
later if its tenant has much ahead of it already. Lower runs first, ties by job id. The order is fixed, so preemption
cannot thrash, and nothing starves.

Is it admitted? `admission` compares the work that is due before its end, per worker, with a half of the time until
then. Under overload the longest are refused first. Durations are compared with durations only, so the rule serves
fleets of 0.2 s images and of 50 min videos alike.

Where does it run? `placement` starts, at each stage, the best-ranked task that can start. An idle denoiser comes first.
If none is idle, a job that ranks ahead of all that a busy denoiser has joins it, and takes the device over at the next
block; the other one stays paused there, or moves to a denoiser that becomes idle.

An example, with κ = 4 and one denoiser that takes two jobs at a time:

    0 s   video (60 s)   rank   0 + 4 · 60 = 240   nothing ahead: admitted; encoded, denoised
    1 s   image (2 s)    rank   1 + 4 · 2  =   9   due before the video: joins the denoiser, the video is paused
    2 s   video (60 s)   rank   2 + 4 · 60 = 242   61 s ahead of 150 s: admitted; waits
    3 s   image done                               the first video goes on

`lifecycle` says what follows the end of a task: a failed one is tried again, so often; a job whose worker died goes on
elsewhere from its checkpoint, alone at first, in case it killed the worker. `store_deadlock` resolves the case that
several jobs fill a store between them. `workers` knows which worker may run what, and which denoisers are reserved for
which pool; pools lend to each other as they are configured. `forecast` predicts starts, for those who ask.

Everything that looks like a cache follows from the rest: queues and sums from the facts of the jobs
(`JobTable.refresh`), eligibility from the workers and the pools.
"""

from math import inf

from services.router.core.actions import Action, AdmitJob, AmendJob, RejectAmendment, RejectJob, Verdict
from services.router.core.admission import Admission, Arrivals
from services.router.core.config import SchedulerConfig
from services.router.core.events import (
    ConfigReloaded,
    EncodesBounded,
    Event,
    JobAmendRequested,
    JobCancelRequested,
    JobRestored,
    JobSubmitted,
    LatentsReady,
    ResultGone,
    StageRefused,
    TaskFailed,
    TaskFinished,
    TaskProgressed,
    TaskSaved,
    Ticked,
    WorkerLost,
    WorkerReturned,
    WorkerSeen,
)
from services.router.core.job import JobRequest, Stage, Task, Tries
from services.router.core.jobs import Attempts, Death, Job, JobTable, new_job
from services.router.core.lifecycle import Lifecycle
from services.router.core.placement import Placement
from services.router.core.ranking import Key
from services.router.core.store_deadlock import StoreDeadlock
from services.router.core.views import JobView, PoolView, Views, WorkerView
from services.router.core.workers import LAST, Workers


class Scheduler:
    """Admits, orders and places jobs. `handle` is the only method that changes anything.

    Times are Unix seconds; a `now` that is behind an earlier one counts as that one.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self.table = JobTable()
        self.fleet = Workers(config.pools_in_force, self.table.changed)
        self._deadlock = StoreDeadlock(self.table, self.fleet)
        self._arrivals = Arrivals(config.overload_window, config.overload_load)
        self._configure(config)

    def _configure(self, config: SchedulerConfig) -> None:
        table, workers = self.table, self.fleet
        self.config = config
        self._admission = Admission(config, table, workers, self._arrivals)
        self._placement = Placement(config, table, workers, self._deadlock)
        self._lifecycle = Lifecycle(config, table, workers, self._placement, self._deadlock)
        self._views = Views(config, table, workers)

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take in what happened; return what is to be done about it, in order.

        Raises `ValueError` if a job is submitted whose id is that of a job not yet over.
        """
        now = max(self.table.now, now)
        self.fleet.now = now
        actions = self._lifecycle.release(now)
        self._deadlock.expire(now)
        actions += self._apply(event, now)
        return actions + self._placement.run()

    def estimate_verdict(self, request: JobRequest, now: float) -> Verdict:
        """Return what admission would say of the job, and when it would start."""
        return self._admission.judge(request, max(self.table.now, now), predict=True)

    def job(self, job_id: str) -> JobView | None:
        """Return a job that is not over, None if it is unknown or over."""
        return self._views.job(job_id)

    def tries(self, job_id: str) -> tuple[Tries, ...]:
        """Return the unsuccessful tries of a job that is not over: for `JobRestored`, should this scheduler be lost."""
        job = self.table.jobs.get(job_id)
        return job.tries() if job else ()

    def pools(self) -> tuple[PoolView, ...]:
        """Return the pools, in the order of the configuration."""
        return self._views.pools()

    def workers(self) -> tuple[WorkerView, ...]:
        """Return the workers, by id."""
        return self._views.workers()

    def next_tick_s(self) -> float | None:
        """Return when `Ticked` will have something to release; None if nothing waits for a time."""
        due_s = (self.table.next_release_s(), self._deadlock.next_due_s())
        return min((time_s for time_s in due_s if time_s is not None), default=None)

    def _apply(self, event: Event, now: float) -> list[Action]:
        match event:
            case TaskProgressed(task) | TaskSaved(task) | TaskFinished(task) | TaskFailed(task) | ResultGone(task):
                job = self._running(task)
                return self._report(event, job, task, now) if job else []
            case JobSubmitted():
                return self._submit(event, now)
            case JobRestored():
                return self._restore(event, now)
            case JobCancelRequested(job_id, reason):
                job = self.table.jobs.get(job_id)
                return self._lifecycle.end(job, "cancelled", reason) if job else []
            case JobAmendRequested(request):
                job = self.table.jobs.get(request.job_id)
                return self._amend(job, request, now) if job else []
            case WorkerSeen(worker):
                self.fleet.see(worker)
            case WorkerLost():
                return self._lose_worker(event, now)
            case WorkerReturned(deaths):
                self._lifecycle.refute(deaths)
            case StageRefused():
                return self._give_up(event)
            case EncodesBounded(ahead_jobs):
                self._placement.encode_ahead_jobs = ahead_jobs
                self.table.changed.add(Stage.ENCODE)
            case ConfigReloaded(config):
                self._reload(config)
            case LatentsReady(job_id, output_index):
                job = self._running(Task(job_id, Stage.DENOISE))
                if job:
                    self._lifecycle.add_latents(job, output_index)
            case Ticked():
                pass
        return []

    def _report(
        self,
        event: TaskProgressed | TaskSaved | TaskFinished | TaskFailed | ResultGone,
        job: Job,
        task: Task,
        now: float,
    ) -> list[Action]:
        match event:
            case TaskProgressed():
                call = job.calls[task]
                call.fraction = max(call.fraction, min(1.0, event.fraction))
                self.table.refresh(job)
                return []
            case TaskSaved(_, output_index, step):
                self._lifecycle.save(job, task, (output_index, step))
                return []
            case TaskFinished(_, seconds):
                if job.attempt <= 1:  # a later attempt may have gone on from a checkpoint
                    self.fleet.observe(job, task, seconds)
                return self._lifecycle.finish(job, task)
            case ResultGone(_, made_by):
                return self._lifecycle.lose_input(job, task, made_by)
            case TaskFailed():
                return self._lifecycle.fail(job, task, event, now)

    def _running(self, task: Task) -> Job | None:
        job = self.table.jobs.get(task.job_id)
        return job if job is not None and task in job.calls else None

    def _submit(self, event: JobSubmitted, now: float) -> list[Action]:
        request = event.request
        if request.job_id in self.table.jobs:
            raise ValueError(f"job {request.job_id} is known already")
        verdict = self._admission.judge(request, now)
        self._arrivals.add(now, request.seconds.total_s)
        if not verdict.admitted:
            return [RejectJob(request.job_id, verdict)]
        job = new_job(request, verdict.rank, self.config.pool_of(request))
        job.encoded |= event.encoded
        job.refines = event.refines
        self.table.add(job)
        return [AdmitJob(request.job_id, verdict)]

    def _amend(self, job: Job, request: JobRequest, now: float) -> list[Action]:
        """Judge and rank more work as if all of it came now; less keeps its rank."""
        self.table.remove(job)
        verdict = self._admission.judge_amended(job, request, now)
        if verdict.admitted:
            job.amend(request, verdict.rank)
            self.table.changed.update(Stage)  # whoever waited behind it may be ahead of it now
        self.table.add(job)
        for task in job.calls:
            self.fleet.settle(job, task)
        if not verdict.admitted:
            return [RejectAmendment(job.job_id, verdict)]
        call = job.calls.get(job.denoise)
        return [AmendJob(job.job_id, verdict, call.worker_id if call else None)]

    def _restore(self, event: JobRestored, now: float) -> list[Action]:
        request = event.request
        if request.job_id in self.table.jobs:
            return []
        job = new_job(request, event.rank, self.config.pool_of(request, event.pool), event.attempt)
        finished = {task.stage for task in event.finished if task.job_id == request.job_id}
        job.latents |= request.outputs if Stage.DENOISE in finished else request.outputs & event.latents
        job.outputs |= request.outputs & event.decoded
        # Where only decodes are left, conditioning is taken to be there: a task that misses it says so.
        job.encoded |= Stage.ENCODE in finished or not job.missing
        job.saved, job.refines = event.saved, event.refines
        job.attempts = {
            each.task: Attempts(each.failures, each.setbacks, (Death(),) if each.suspect else ())
            for each in event.tries
        }
        self._bound(job)
        # It arrived so long before it is due, or earlier: it may have had to wait for its tenant's turn.
        arrival_s = min(now, event.rank - self.config.kappa * request.seconds.total_s)
        self._arrivals.add(arrival_s, request.seconds.total_s)
        self.table.add(job)
        return self._lifecycle.end(job, "succeeded") if job.complete else []

    def _give_up(self, event: StageRefused) -> list[Action]:
        """Fail the jobs of the model that wait for the stage, held back or not."""
        waiting = [
            job
            for job in self.table.jobs.values()
            if job.request.model == event.model
            if any(task.stage is event.stage for task in job.startable(inf))
        ]
        return [
            action for job in waiting for action in self._lifecycle.end(job, "failed", "MODEL_UNAVAILABLE", event.blame)
        ]

    def _lose_worker(self, event: WorkerLost, now: float) -> list[Action]:
        """Run again what the worker ran. Its death counts against the first of the tasks that had reached it."""
        worker = self.fleet.lose(event.worker_id)
        lost = list(worker.running.items()) if worker else []
        first = min([_place(job, task) for task, job in lost if task not in event.unbegun], default=LAST)
        actions: list[Action] = []
        for task, job in lost:
            del job.calls[task]
        for task, job in lost:
            if job.job_id not in self.table.jobs:  # an earlier task of this worker has ended the job
                continue
            if task in event.unbegun:
                unreached = TaskFailed(task, "WORKER_LOST", event.worker_id, retryable=True, counts=False)
                actions += self._lifecycle.fail(job, task, unreached, now)
            else:
                death = Death(event.death, event.worker_id, int(_place(job, task) == first))
                actions += self._lifecycle.lose_worker(job, task, death, now)
        return actions

    def _reload(self, config: SchedulerConfig) -> None:
        """Go on with other settings: jobs keep their ranks, and what runs stays where it is."""
        self.table.changed.update(Stage)
        if config == self.config:
            return
        self._arrivals = self._arrivals.resized(config.overload_window, config.overload_load)
        ahead_jobs = self._placement.encode_ahead_jobs
        self._configure(config)
        self._placement.encode_ahead_jobs = ahead_jobs
        self.fleet.reserve_for(config.pools_in_force)
        for job in list(self.table.jobs.values()):
            self.table.remove(job)
            job.pool = config.pool_of(job.request, job.pool).name
            self._bound(job)
            self.table.add(job)

    def _bound(self, job: Job) -> None:
        """Tries that another configuration allowed are no reason to end the job now."""
        for attempts in job.attempts.values():
            attempts.failures = min(attempts.failures, self.config.max_attempts - 1)
            attempts.setbacks = min(attempts.setbacks, self.config.max_setbacks)
        job.reruns = min(job.reruns, self.config.max_reruns)


def _place(job: Job, task: Task) -> Key:
    return (job.rank, job.job_id, task.output_index)
