"""A driver that runs nothing but checks everything: what the scheduler asks for must be possible and asked for once."""

from dataclasses import dataclass, field

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
    Verdict,
)
from services.router.core.config import SchedulerConfig
from services.router.core.events import Event, JobAmendRequested, JobRestored, JobSubmitted, WorkerSeen
from services.router.core.job import JobRequest, Stage, Task, WorkerInfo
from services.router.core.scheduler import Scheduler
from tests.scenarios.invariants import check


@dataclass
class KnownJob:
    """An accepted job as a durable store knows it. `encoded` and `latents` are results that are on the exchange."""

    request: JobRequest
    verdict: Verdict
    arrival_s: float = 0.0
    attempt: int = 0
    encoded: bool = False
    latents: set[int] = field(default_factory=set)
    decoded: set[int] = field(default_factory=set)
    outcome: str = ""
    # A call for it failed: it may wait out a back-off, or for a worker of its own.
    troubled: bool = False
    # Its rank may be that of another configuration.
    amended: bool = False

    @property
    def outputs(self) -> set[int]:
        return set(range(self.request.output_count))


class ModelDriver:
    """Feeds events, performs actions on a model of the fleet and the store, and keeps a log for a replay."""

    def __init__(self, config: SchedulerConfig) -> None:
        self.config = config
        self.now = 0.0
        self.ahead_jobs: int | None = None
        self.jobs: dict[str, KnownJob] = {}
        self.refused: dict[str, Verdict] = {}
        self.workers: dict[str, WorkerInfo] = {}
        self.calls: dict[Task, str] = {}
        self.targets: dict[str, set[int]] = {}
        # In the order of their acceptance, by the configuration that they were accepted under.
        self.accepted: list[tuple[SchedulerConfig, list[KnownJob]]] = []
        self._begin()

    def _begin(self) -> None:
        self._first = self.config
        self.scheduler = Scheduler(self.config)
        self.log: list[tuple[float, Event, list[Action]]] = []

    def send(self, event: Event) -> list[Action]:
        """Report an event and perform what follows."""
        actions = self.scheduler.handle(event, self.now)
        self.log.append((self.now, event, actions))
        if isinstance(event, JobSubmitted):
            assert isinstance(actions[0], AdmitJob | RejectJob)
        for action in actions:
            self._perform(event, action)
        self.check_order([action.task for action in actions if isinstance(action, StartTask)])
        check(self.scheduler)
        return actions

    def check_order(self, begun: list[Task]) -> None:
        """Who begins to denoise leaves nobody behind who ranks ahead, and whom the same workers suit."""
        denoises = {task.job_id for task in self.calls if task.stage is Stage.DENOISE}
        waiting = [
            view
            for job_id, job in self.jobs.items()
            if job.encoded and not job.outcome and not job.troubled and job_id not in denoises
            if not job.latents | job.decoded >= job.outputs and (view := self.scheduler.job(job_id)) is not None
        ]
        capped = {pool.name for pool in self.config.pools if pool.max_running is not None}
        for task in begun if waiting else ():
            first = self.scheduler.job(task.job_id)
            if task.stage is Stage.DENOISE and first is not None and not self.jobs[task.job_id].troubled:
                model = self.jobs[task.job_id].request.model
                for view in waiting:
                    if view.pool == first.pool and view.pool not in capped:
                        other = self.jobs[view.job_id].request.model
                        assert other != model or (first.rank, first.job_id) < (view.rank, view.job_id)

    def replay(self) -> None:
        """The same events give the same actions."""
        again = Scheduler(self._first)
        for now, event, actions in self.log:
            assert again.handle(event, now) == actions

    def restart(self) -> None:
        """The router dies with all its calls; another one takes up what is in the store."""
        self.replay()
        self.calls.clear()
        self.targets.clear()
        self._begin()
        self.ahead_jobs = None
        for info in self.workers.values():
            self.send(WorkerSeen(info))
        for job in self.jobs.values():
            # Where only decodes are left, conditioning is taken to be there: most do without it, the others say so.
            job.encoded |= job.latents | job.decoded >= job.outputs
        for job_id in [job_id for job_id, job in self.jobs.items() if not job.outcome]:
            for _ in range(2):  # the second time, nothing may start twice
                if not self.jobs[job_id].outcome:
                    self.send(self.restored(self.jobs[job_id]))

    def restored(self, job: KnownJob) -> JobRestored:
        finished = {Task(job.request.job_id, Stage.DECODE, index) for index in job.decoded}
        if job.encoded:
            finished.add(Task(job.request.job_id, Stage.ENCODE))
        if job.latents >= job.outputs:
            finished.add(Task(job.request.job_id, Stage.DENOISE))
        verdict = job.verdict
        latents = frozenset(job.latents)
        return JobRestored(job.request, verdict.rank, verdict.pool, job.attempt, frozenset(finished), latents)

    def running(self, stage: Stage | None = None) -> list[Task]:
        """Calls under way, in a fixed order."""
        tasks = [task for task in self.calls if stage is None or task.stage is stage]
        return sorted(tasks, key=lambda task: (task.job_id, task.stage.value, task.output_index))

    def end_call(self, task: Task) -> None:
        del self.calls[task]
        if task.stage is Stage.DENOISE:
            self.targets.pop(task.job_id)

    def finish(self, task: Task) -> None:
        """Make the task's result durable. Its event is the caller's to send."""
        job = self.jobs[task.job_id]
        match task.stage:
            case Stage.ENCODE:
                job.encoded = True
            case Stage.DENOISE:
                job.latents |= self.targets[task.job_id]
            case Stage.DECODE:
                job.decoded.add(task.output_index)
        self.end_call(task)

    def _perform(self, event: Event, action: Action) -> None:
        match action:
            case AdmitJob(job_id, verdict):
                assert isinstance(event, JobSubmitted)
                assert job_id not in self.jobs
                self.jobs[job_id] = KnownJob(event.request, verdict, self.now)
                if not self.accepted or self.accepted[-1][0] is not self.scheduler.config:
                    self.accepted.append((self.scheduler.config, []))
                self.accepted[-1][1].append(self.jobs[job_id])
            case RejectJob(job_id, verdict):
                assert verdict.reason
                assert verdict.retry_after_s >= 0
                self.refused[job_id] = verdict
            case AmendJob(job_id, verdict, worker_id):
                assert isinstance(event, JobAmendRequested)
                job = self.jobs[job_id]
                assert verdict.rank >= job.verdict.rank
                grows = event.request.seconds.total_s > job.request.seconds.total_s
                assert grows or verdict.rank == job.verdict.rank
                assert self.calls.get(Task(job_id, Stage.DENOISE)) == worker_id
                job.request, job.verdict, job.amended = event.request, verdict, True
            case RejectAmendment(job_id, verdict):
                assert isinstance(event, JobAmendRequested)
                assert verdict.reason
                assert event.request.seconds.total_s > self.jobs[job_id].request.seconds.total_s
            case StartTask():
                self._start(action)
            case StopTask(task, worker_id):
                assert self.calls[task] == worker_id
                self.end_call(task)
            case RequeueJob(job_id):
                assert not self.jobs[job_id].outcome
                self.jobs[job_id].troubled = True
            case GiveBack():
                self._give_back(action)
            case FinishJob(job_id, outcome, reason):
                self._over(job_id, outcome, reason)

    def _start(self, action: StartTask) -> None:
        task, job, worker = action.task, self.jobs[action.task.job_id], self.workers[action.worker_id]
        assert not job.outcome
        assert task not in self.calls, "run twice"
        assert worker.ready
        assert worker.stage is task.stage
        assert job.request.model in worker.models
        assert list(self.calls.values()).count(action.worker_id) < worker.slots, "over capacity"
        match task.stage:
            case Stage.ENCODE:
                assert not job.encoded
                assert self.ahead_jobs != 0
            case Stage.DENOISE:
                assert job.encoded
                assert action.finished_outputs == job.latents | job.decoded
                self.targets[task.job_id] = job.outputs - action.finished_outputs
                assert self.targets[task.job_id]
                job.attempt += 1
                assert action.attempt == job.attempt
            case Stage.DECODE:
                assert task.output_index in job.latents - job.decoded
        self.calls[task] = action.worker_id

    def _give_back(self, action: GiveBack) -> None:
        job, taker = self.jobs[action.job_id], self.jobs[action.taker]
        assert not job.outcome
        assert not taker.outcome
        assert (taker.verdict.rank, action.taker) < (job.verdict.rank, action.job_id)
        calls = [task.stage for task in self.calls if task.job_id == action.job_id]
        assert Stage.DECODE not in calls
        assert action.stage not in calls
        if action.stage is Stage.DECODE:
            assert action.outputs == job.decoded != set()
            job.decoded.clear()
        else:
            job.latents.clear()
        job.troubled = True

    def _over(self, job_id: str, outcome: str, reason: str) -> None:
        job = self.jobs[job_id]
        assert not job.outcome, "over twice"
        assert (outcome == "failed") == bool(reason)
        assert outcome != "succeeded" or job.decoded == job.outputs
        assert not [task for task in self.calls if task.job_id == job_id]
        job.outcome = outcome
