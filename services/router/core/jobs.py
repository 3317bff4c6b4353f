"""Accepted jobs: the facts that are known of each, what could start next, and the queues that follow from them.

A job is facts: its conditioning is there or not, these latents are durable, these outputs are decoded, these tasks run
on these workers, this task is held back until then. Nothing else is stored of its progress. A finished task adds a
fact, a lost result removes one, a restored job begins with those that are left; `Job.startable` says what follows.

    conditioning   latents   outputs   may start
    missing        any       not all   encode
    there          {}        {}        denoise
    there          {0}       {}        denoise of the others, decode 0
    there          {0, 1}    {0}       decode 1
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from services.router.core.config import PoolConfig
from services.router.core.job import JobRequest, Stage, Task, Tries
from services.router.core.ranking import Key, RankedSums, Tenant

Seconds = tuple[float, float, float]
"""Seconds of encode, denoise and decode."""


@dataclass(frozen=True, slots=True)
class Death:
    """The death of a worker that ran a task: its number, as events have it, and the failures charged to the task."""

    number: int = 0
    worker_id: str = ""
    failures: int = 0


@dataclass(slots=True)
class Attempts:
    """Unsuccessful tries of a task, as `Tries` has them, and the deaths of workers that ran it."""

    failures: int = 0
    setbacks: int = 0
    deaths: tuple[Death, ...] = ()


@dataclass(slots=True)
class Call:
    """A task that runs. `targets` are the outputs that a denoise makes, `fraction` (0 to 1) is how much is done."""

    worker_id: str
    targets: frozenset[int] = frozenset()
    fraction: float = 0.0


@dataclass(slots=True, eq=False)
class Job:
    """An accepted job that is not over. Sets hold indices of outputs.

    `attempt` counts starts of its denoise, `reruns` results that had to be made again. `saved` is the furthest point
    (output, step) that another try of the denoise could go on from. `refines`: it goes on from latents of another job,
    which are kept for it. `ready` and `booked` belong to the `JobTable`: what it holds of this job.
    """

    request: JobRequest
    key: Key
    pool: str
    encoded: bool = False
    latents: set[int] = field(default_factory=set)
    outputs: set[int] = field(default_factory=set)
    calls: dict[Task, Call] = field(default_factory=dict)
    held_until: dict[Task, float] = field(default_factory=dict)
    attempts: dict[Task, Attempts] = field(default_factory=dict)
    attempt: int = 0
    reruns: int = 0
    saved: tuple[int, int] = (0, 0)
    refines: bool = False
    ready: tuple[Task, ...] = ()
    waits: bool = False
    booked: Seconds | None = None

    @property
    def job_id(self) -> str:
        return self.request.job_id

    @property
    def rank(self) -> float:
        return self.key[0]

    @property
    def encode(self) -> Task:
        return Task(self.job_id, Stage.ENCODE)

    @property
    def denoise(self) -> Task:
        return Task(self.job_id, Stage.DENOISE)

    @property
    def missing(self) -> frozenset[int]:
        """Outputs of which neither the latents nor the pixels are durable."""
        return self.request.outputs - self.latents - self.outputs

    @property
    def undecoded(self) -> list[int]:
        """Outputs of which the latents are durable and the pixels are to be made, in order."""
        return sorted(self.latents - self.outputs) if Stage.DECODE in self.request.stages else []

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do. Its denoise may still be about to report when the last output is decoded."""
        if self.missing or self.denoise in self.calls:
            return False
        return Stage.DECODE not in self.request.stages or len(self.outputs) == self.request.output_count

    def startable(self, now: float) -> tuple[Task, ...]:
        """Return the tasks that could start: their input is there, they do not run, and are not held back."""
        if not self.encoded:
            tasks = [self.encode] if self.missing or self.undecoded else []
        else:
            tasks = [self.denoise] if self.missing else []
            tasks += [Task(self.job_id, Stage.DECODE, index) for index in self.undecoded]
        return tuple([t for t in tasks if t not in self.calls and self.held_until.get(t, now) <= now])

    def remaining(self, task: Task) -> float:
        """Return the estimated seconds still to run of a task, ≥ 0: of one that runs, less what it has done."""
        encode_s, denoise_s, decode_s = self.request.seconds.each
        count = self.request.output_count
        call = self.calls.get(task)
        todo = 1.0 - call.fraction if call is not None else 1.0
        match task.stage:
            case Stage.ENCODE:
                return 0.0 if self.encoded else encode_s * todo
            case Stage.DECODE:
                return 0.0 if task.output_index in self.outputs else decode_s / count * todo
            case Stage.DENOISE:
                outputs = len(self.missing) if call is None else len(call.targets)
                return denoise_s * todo * outputs / count

    @property
    def remaining_s(self) -> Seconds:
        """Estimated seconds still to run, by stage."""
        encode_s, denoise_s, decode_s = self.request.seconds.each
        count = self.request.output_count
        parts = [0.0 if self.encoded else encode_s, denoise_s * len(self.missing) / count, 0.0]
        if Stage.DECODE in self.request.stages:
            parts[2] = decode_s * (count - len(self.outputs)) / count
        for task, call in self.calls.items():
            if task.stage is Stage.ENCODE:
                parts[0] = self.remaining(task)
            elif task.stage is Stage.DENOISE:
                parts[1] = self.remaining(task)
            else:
                parts[2] -= decode_s / count * call.fraction
        return (parts[0], parts[1], max(0.0, parts[2]))

    def tries(self) -> tuple[Tries, ...]:
        """Return the unsuccessful tries of its tasks, those of the encode first."""
        order = {stage: place for place, stage in enumerate(Stage)}
        counted = sorted(self.attempts.items(), key=lambda item: (order[item[0].stage], item[0].output_index))
        return tuple(Tries(task, a.failures, a.setbacks, bool(a.deaths)) for task, a in counted if a != Attempts())

    def is_suspect(self, task: Task) -> bool:
        attempts = self.attempts.get(task)
        return attempts is not None and bool(attempts.deaths)

    def amend(self, request: JobRequest, rank: float) -> None:
        """Put another price, and another rank, on the job. What its running denoise has done stays done.

        Outputs that are finished stay so; of the one at work the same number of seconds is done as before.
        """
        call = self.calls.get(self.denoise)
        old_s, new_s = self.request.seconds.denoise_s, request.seconds.denoise_s
        self.request, self.key = request, (rank, self.job_id, 0)
        if call is not None:
            count = max(1, len(call.targets))
            whole, part = divmod(call.fraction * count, 1.0)
            part = min(1.0, part * old_s / new_s) if new_s > 0 else part
            call.fraction = min(1.0, (whole + part) / count)


class QueueKey(NamedTuple):
    """What jobs of a queue have in common: a worker that may run one of them may run all."""

    pool: str
    model: str


class Queue:
    """Jobs of one pool and model. `waiting` for a denoiser, and `ready` to start a stage, in rank order.

    `backlog` has the remaining seconds of every job, by stage.
    """

    def __init__(self, key: QueueKey) -> None:
        self.key = key
        self.backlog = RankedSums(width=3)
        self.waiting: list[Key] = []
        self.ready: dict[Stage, list[Key]] = {stage: [] for stage in Stage}


class JobTable:
    """Accepted jobs by id, with their queues and tenants, which last while they have jobs.

    `refresh` is told of each job whose facts have changed, and brings the rest up to date. `changed` collects the
    stages at which something new may be able to start.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.queues: dict[QueueKey, Queue] = {}
        self.tenants: dict[str, Tenant] = {}
        self.changed: set[Stage] = set()
        self.now = 0.0
        self._held: list[tuple[float, str, int, Task]] = []
        self._holds = 0

    def add(self, job: Job) -> None:
        """Take a job up, with the facts that it has."""
        self.jobs[job.job_id] = job
        tenant = self.tenants.setdefault(job.request.tenant, Tenant())
        tenant.add(job.request, job.rank)
        self.refresh(job)

    def remove(self, job: Job) -> None:
        """Forget a job."""
        del self.jobs[job.job_id]
        queue, tenant = self._queue(job), self.tenants[job.request.tenant]
        self._set_ready(queue, job, ())
        self._set_waiting(queue, job, False)
        if job.booked is not None:
            queue.backlog.remove(job.key)
            tenant.backlog.remove(job.key)
            job.booked = None
        tenant.remove(job.request, job.rank)
        if not len(queue.backlog):
            del self.queues[queue.key]
        if not len(tenant.backlog):
            del self.tenants[job.request.tenant]

    def refresh(self, job: Job) -> None:
        """Bring queues and sums up to date with the facts of a job."""
        queue = self._queue(job)
        self._set_waiting(queue, job, job.denoise not in job.calls and bool(job.missing))
        self._set_ready(queue, job, job.startable(self.now))
        seconds = job.remaining_s
        if seconds != job.booked:
            job.booked = seconds
            queue.backlog.put(job.key, seconds)
            self.tenants[job.request.tenant].backlog.put(job.key, (sum(seconds),))

    def hold(self, job: Job, task: Task, until_s: float) -> None:
        """Keep a task back until then."""
        job.held_until[task] = until_s
        self._holds += 1
        heappush(self._held, (until_s, job.job_id, self._holds, task))

    def release(self, now: float) -> list[tuple[Job, Task]]:
        """Let every task start whose time has come; return these. `now` is the time from now on."""
        self.now = now
        released = []
        while self._held and self._held[0][0] <= now:
            _, job_id, _, task = heappop(self._held)
            job = self.jobs.get(job_id)
            if job is not None and job.held_until.get(task, now + 1.0) <= now:
                del job.held_until[task]
                self.refresh(job)
                released.append((job, task))
        return released

    def next_release_s(self) -> float | None:
        """Return when the next task may be released; None if none is held."""
        return self._held[0][0] if self._held else None

    @property
    def remaining_s(self) -> float:
        """Remaining seconds of all jobs."""
        return sum([sum(queue.backlog.total()) for queue in self.queues.values()])

    def may_encode(self, queue: Queue, key: Key, ahead_jobs: int) -> bool:
        """Return whether a job is among the first that wait for a denoiser, or waits for none."""
        if ahead_jobs <= 0:
            return False
        return not self.jobs[key[1]].waits or bisect_left(queue.waiting, key) < ahead_jobs

    def _queue(self, job: Job) -> Queue:
        key = QueueKey(job.pool, job.request.model)
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = Queue(key)
        return queue

    def _set_waiting(self, queue: Queue, job: Job, waits: bool) -> None:
        if waits == job.waits:
            return
        job.waits = waits
        self.changed.add(Stage.ENCODE)  # others may have come among the first
        if waits:
            insort(queue.waiting, job.key)
        else:
            del queue.waiting[bisect_left(queue.waiting, job.key)]

    def _set_ready(self, queue: Queue, job: Job, ready: tuple[Task, ...]) -> None:
        if ready == job.ready:
            return
        for task in job.ready:
            if task not in ready:
                keys = queue.ready[task.stage]
                place = bisect_left(keys, _key(job, task))
                del keys[place]
                if place == 0:
                    self.changed.add(task.stage)
        for task in ready:
            if task not in job.ready:
                keys, key = queue.ready[task.stage], _key(job, task)
                insort(keys, key)
                if keys[0] == key:
                    self.changed.add(task.stage)
        job.ready = ready


def _key(job: Job, task: Task) -> Key:
    return (job.rank, job.job_id, task.output_index)


def new_job(request: JobRequest, rank: float, pool: PoolConfig, attempt: int = 0) -> Job:
    """Return a job of which nothing is made yet."""
    encoded = Stage.ENCODE not in request.stages
    return Job(request, (rank, request.job_id, 0), pool.name, encoded=encoded, attempt=attempt)
