"""A scheduler's workers, played on a clock that jumps from event to event, and jobs for them."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random

from services.router.core.actions import Action, AdmitJob, FinishJob, RejectJob, StartTask, StopTask
from services.router.core.config import PoolConfig
from services.router.core.events import Event, JobSubmitted, TaskFinished, TaskProgressed, WorkerLost
from services.router.core.job import JobRequest, Stage, StageSeconds, Task, WorkerInfo
from services.router.core.scheduler import Scheduler

MODELS = tuple(f"model-{index}" for index in range(5))
CLASSES = ("batch", "standard", "standard", "premium")
TENANTS = tuple(f"tenant-{index}" for index in range(200))
MOST_S = 10**9
POOLS = (
    PoolConfig("interactive", max_estimate_s=20.0, max_backlog_s=MOST_S, borrow="idle"),
    PoolConfig("long", max_backlog_s=MOST_S, borrow="preemptible"),
)


def crew(worker_count: int) -> Iterator[WorkerInfo]:
    """Eight denoisers to one encoder and one decoder; each serves two of the models."""
    for index in range(worker_count):
        stage, slots = {0: (Stage.ENCODE, 8), 1: (Stage.DECODE, 4)}.get(index % 10, (Stage.DENOISE, 3))
        first = index // 10 % len(MODELS)
        models = frozenset({MODELS[first], MODELS[(first + 1) % len(MODELS)]})
        yield WorkerInfo(f"{stage.value}-{index:04}", stage, models, models, slots, True)


def a_job(number: int, random: Random) -> JobRequest:
    """Four images to one video; a few tenants ask for most of it."""
    denoise_s = random.lognormvariate(1.2, 0.6) if random.random() < 0.8 else random.lognormvariate(5.0, 0.6)
    tenant = TENANTS[min(len(TENANTS) - 1, int(random.paretovariate(0.8)) - 1)]
    seconds = StageSeconds(0.05, denoise_s, 0.02 * denoise_s)
    return JobRequest(f"job-{number:09}", tenant, random.choice(MODELS), random.choice(CLASSES), seconds)


@dataclass
class Fleet:
    """Plays a scheduler's workers, on a clock that jumps from event to event. `taken_ns`: time of each `handle`."""

    scheduler: Scheduler
    now: float = 0.0
    taken_ns: list[int] = field(default_factory=list)
    over: int = 0
    _queue: list[tuple[float, int, Event]] = field(default_factory=list)
    _calls: dict[Task, tuple[int, str]] = field(default_factory=dict)
    _jobs: dict[str, JobRequest] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def send(self, event: Event) -> None:
        if isinstance(event, JobSubmitted):
            self._jobs[event.request.job_id] = event.request
        began_ns = time.perf_counter_ns()
        actions = self.scheduler.handle(event, self.now)
        self.taken_ns.append(time.perf_counter_ns() - began_ns)
        for action in actions:
            self._perform(action)

    def step(self) -> None:
        """The next report of a call that still goes on."""
        while True:
            self.now, number, event = heappop(self._queue)
            assert isinstance(event, TaskFinished | TaskProgressed)
            if self._calls.get(event.task, (0, ""))[0] == number:
                break
        if isinstance(event, TaskFinished):
            del self._calls[event.task]
        self.send(event)

    def lose(self, worker_id: str) -> None:
        for task in [task for task, (_, place) in self._calls.items() if place == worker_id]:
            del self._calls[task]
        self.send(WorkerLost(worker_id))

    def _perform(self, action: Action) -> None:
        match action:
            case StartTask(task, worker_id):
                job = self._jobs[task.job_id]
                seconds = {
                    Stage.ENCODE: job.seconds.encode_s,
                    Stage.DENOISE: job.seconds.denoise_s,
                    Stage.DECODE: job.seconds.decode_s,
                }[task.stage]
                number = next(self._numbers) + 1
                self._calls[task] = (number, worker_id)
                if task.stage is Stage.DENOISE:
                    heappush(self._queue, (self.now + seconds / 2, number, TaskProgressed(task, 0.5)))
                heappush(self._queue, (self.now + seconds, number, TaskFinished(task, seconds)))
            case StopTask(task):
                self._calls.pop(task, None)
            case FinishJob(job_id) | RejectJob(job_id):
                self._jobs.pop(job_id, None)
                self.over += 1
            case AdmitJob():
                pass
