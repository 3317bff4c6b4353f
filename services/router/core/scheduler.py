"""The scheduler: events in, actions out, nothing else."""

from services.router.core.actions import Action, AdmitJob, AmendJob, RejectAmendment, RejectJob, Verdict
from services.router.core.admission import Admission
from services.router.core.book import Book
from services.router.core.config import SchedulerConfig
from services.router.core.dispatch import Dispatch
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
    TaskFailed,
    TaskFinished,
    TaskProgressed,
    TaskSaved,
    Ticked,
    WorkerLost,
    WorkerReturned,
    WorkerSeen,
)
from services.router.core.fleet import Fleet
from services.router.core.gridlock import Gridlock
from services.router.core.invariants import check
from services.router.core.job import JobRequest, Stage, Task, Tries
from services.router.core.moves import Moves
from services.router.core.policy import POLICIES, pools_in_force
from services.router.core.progress import Progress
from services.router.core.rebalance import Rebalance
from services.router.core.record import JobRecord, is_long, new_record
from services.router.core.task import Death, TaskRecord, TaskState
from services.router.core.views import JobView, PoolView, Views, WorkerView


class Scheduler:
    """Admits, orders and places jobs. `handle` is the only method that changes anything.

    Times are Unix seconds; a `now` that is behind an earlier one counts as that one. The same events at the same times
    give the same actions.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._now = 0.0
        self._due: set[Stage] = set()
        self._ahead_jobs: int | None = None
        self._book = Book(self._due, fair=_is_fair(config))
        self._fleet = Fleet(pools_in_force(config), self._due)
        self._gridlock = Gridlock(self._book, self._fleet.reach, self._due)
        self._configure(config)

    def _configure(self, config: SchedulerConfig) -> None:
        pools = pools_in_force(config)
        self.config = config
        self._admission = Admission(config, pools, self._book, self._fleet)
        self._progress = Progress(config, self._book, self._fleet, self._gridlock)
        self._dispatch = Dispatch(config, pools, self._book, self._fleet, self._gridlock, self._due)
        self._dispatch.bound_encodes(self._ahead_jobs)
        self._moves = Moves(config, self._book, self._fleet, self._dispatch)
        self._rebalance = Rebalance(config, pools, self._book, self._fleet)
        self._views = Views(config, pools, self._book, self._fleet)

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take in what happened; returns what is to be done about it, in order.

        Raises `ValueError` if a job is submitted whose id is that of a job not yet over.
        """
        self._now = self._fleet.now = max(self._now, now)
        actions = self._progress.release(self._now)
        self._gridlock.expire(self._now)
        actions += self._apply(event)
        if not isinstance(event, TaskProgressed):
            actions += self._rebalance.run()
            actions += self._dispatch.run()
            moved = self._moves.run()
            if moved:  # there is room where they were
                actions += moved + self._dispatch.run()
        return actions

    def estimate_verdict(self, request: JobRequest, now: float) -> Verdict:
        """What admission would say of the job, and when it would start; changes nothing."""
        return self._admission.judge(request, max(self._now, now), foretell=True)

    def job(self, job_id: str) -> JobView | None:
        """A job that is not over, None if unknown or over."""
        return self._views.job(job_id)

    def tries(self, job_id: str) -> tuple[Tries, ...]:
        """What was tried in vain of a job that is not over: for `JobRestored`, should this scheduler be lost."""
        job = self._book.jobs.get(job_id)
        return tuple(tries for record in job.tasks if (tries := record.tries)) if job else ()

    def pools(self) -> tuple[PoolView, ...]:
        """The pools, in the order of the configuration."""
        return self._views.pools()

    def workers(self) -> tuple[WorkerView, ...]:
        """The workers, by id."""
        return self._views.workers()

    def next_tick_s(self) -> float | None:
        """When `Ticked` will have something to release; None if nothing waits for a time. A later tick does no harm."""
        due_s = (
            self._book.next_release_s(),
            self._gridlock.next_due_s(),
            self._moves.next_due_s(),
            self._rebalance.next_due_s(),
        )
        return min((time_s for time_s in due_s if time_s is not None), default=None)

    def check_invariants(self) -> None:
        """Raise `AssertionError` if the state contradicts itself. Looks at everything: for tests."""
        check(self.config, self._book, self._fleet)

    def _apply(self, event: Event) -> list[Action]:
        match event:
            case TaskProgressed() | TaskSaved() | TaskFinished() | TaskFailed() | ResultGone():
                found = self._running(event.task)
                return self._report(event, *found) if found else []
            case JobSubmitted():
                return self._submit(event)
            case JobRestored():
                return self._restore(event)
            case JobCancelRequested(job_id):
                job = self._book.jobs.get(job_id)
                return self._progress.end(job, "cancelled") if job else []
            case JobAmendRequested(request):
                job = self._book.jobs.get(request.job_id)
                return self._amend(job, request) if job else []
            case WorkerSeen(worker):
                self._fleet.see(worker)
                return []
            case WorkerLost():
                return self._lose_worker(event)
            case WorkerReturned(deaths):
                self._progress.refute(deaths)
                return []
            case EncodesBounded(ahead_jobs):
                self._ahead_jobs = ahead_jobs
                self._dispatch.bound_encodes(ahead_jobs)
                return []
            case ConfigReloaded(config):
                self._reload(config)
                return []
            case Ticked():
                return []
            case LatentsReady(job_id, output_index):
                found = self._running(Task(job_id, Stage.DENOISE))
                if found:
                    self._progress.latents_ready(found[0], output_index)
                return []

    def _reload(self, config: SchedulerConfig) -> None:
        if config == self.config:
            self._fleet.wake()
            return
        self._configure(config)
        self._fleet.share_out(pools_in_force(config), {})
        self._book.rearrange(_is_fair(config), self._place)

    def _place(self, job: JobRecord) -> None:
        """Find the job's place under a configuration that it was not accepted under."""
        pool = self._admission.pool_named(job.pool) or self._admission.pool_of(job.request)
        job.pool, job.is_long = pool.name, is_long(job.request, pool)
        for record in job.tasks:
            self._bound(record)
        job.reruns = min(job.reruns, self.config.max_reruns)

    def _bound(self, record: TaskRecord) -> None:
        """What it was allowed under another configuration is no reason to end it now."""
        record.failures = min(record.failures, self.config.max_attempts - 1)
        record.setbacks = min(record.setbacks, self.config.max_setbacks)

    def _report(
        self,
        event: TaskProgressed | TaskSaved | TaskFinished | TaskFailed | ResultGone,
        job: JobRecord,
        record: TaskRecord,
    ) -> list[Action]:
        match event:
            case TaskProgressed():
                record.fraction = max(record.fraction, min(1.0, event.fraction))
                self._book.reckon(job)
                self._fleet.progressed(record)
                return []
            case TaskSaved(_, output_index, step):
                self._progress.save(record, (output_index, step))
                return []
            case TaskFinished(_, seconds):
                if job.attempt <= 1:  # a later attempt may have gone on from a checkpoint
                    self._fleet.observe(record, seconds)
                return self._progress.finish(job, record)
            case ResultGone(_, made_by):
                return self._progress.lose_input(job, record, made_by)
            case TaskFailed():
                return self._progress.fail(job, record, event, self._now)

    def _running(self, task: Task) -> tuple[JobRecord, TaskRecord] | None:
        job = self._book.jobs.get(task.job_id)
        record = job.task(task) if job else None
        return (job, record) if job and record and record.state is TaskState.RUNNING else None

    def _submit(self, event: JobSubmitted) -> list[Action]:
        request = event.request
        if request.job_id in self._book.jobs:
            raise ValueError(f"job {request.job_id} is known already")
        verdict = self._admission.judge(request, self._now)
        if not verdict.admitted:
            return [RejectJob(request.job_id, verdict)]
        pool = self._admission.pool_named(verdict.pool)
        assert pool is not None
        job = new_record(request, verdict.rank, pool)
        job.refines = event.refines
        if Stage.ENCODE in request.stages and not event.encoded:
            job.encode.state = TaskState.READY
        else:
            job.encode.state, job.denoise.state = TaskState.DONE, TaskState.READY
        self._book.add(job)
        return [AdmitJob(request.job_id, verdict)]

    def _amend(self, job: JobRecord, request: JobRequest) -> list[Action]:
        """More work is judged and ranked as if all of it came now; less keeps its rank."""
        self._book.remove(job)
        verdict = self._admission.judge_amended(job, request, self._now)
        if verdict.admitted:
            pool = self._admission.pool_named(job.pool) or self._admission.pool_of(request)
            job.amend(request, verdict.rank, is_long=is_long(request, pool))
        self._book.add(job)
        self._fleet.reorder(job.denoise, job.rank)
        if not verdict.admitted:
            return [RejectAmendment(job.job_id, verdict)]
        runs = job.denoise.state is TaskState.RUNNING and job.denoise.worker_id
        return [AmendJob(job.job_id, verdict, job.denoise.worker_id if runs else None)]

    def _restore(self, event: JobRestored) -> list[Action]:
        request = event.request
        if request.job_id in self._book.jobs:
            return []
        pool = self._admission.pool_named(event.pool) or self._admission.pool_of(request)
        job = new_record(request, event.rank, pool, event.attempt)
        finished = frozenset(task.stage for task in event.finished if task.job_id == request.job_id)
        outputs = request.outputs
        job.latents |= outputs if Stage.DENOISE in finished else outputs & event.latents
        for tries in event.tries:
            record = job.task(tries.task)
            if record is not None:
                record.failures, record.setbacks = tries.failures, tries.setbacks
                record.deaths = (Death(),) if tries.suspect else ()
                self._bound(record)
        job.denoise.saved, job.refines = event.saved, event.refines
        self._progress.restore(job, finished, event.decoded)
        self._book.add(job)
        return self._progress.end(job, "succeeded") if job.complete else []

    def _lose_worker(self, event: WorkerLost) -> list[Action]:
        actions: list[Action] = []
        for record, at_fault in self._fleet.lose(event.worker_id, event.unbegun):
            job = self._book.jobs.get(record.task.job_id)
            if job is None:  # an earlier task of this worker may have ended the job
                continue
            if record.task in event.unbegun:
                unreached = TaskFailed(record.task, "WORKER_LOST", event.worker_id, retryable=True, counts=False)
                actions += self._progress.fail(job, record, unreached, self._now)
            else:
                death = Death(event.death, event.worker_id, int(at_fault))
                actions += self._progress.lose_worker(job, record, death, self._now)
        return actions


def _is_fair(config: SchedulerConfig) -> bool:
    """Whether a tenant's own work puts its ranks off."""
    return POLICIES[config.policy].rank == "stretch"
