"""A driver of the scheduler whose clock jumps from event to event. Workers take exactly the estimated seconds."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf

from services.router.core.actions import Action, FinishJob, RejectJob, StartTask, StopTask, Verdict
from services.router.core.events import Event, JobSubmitted, TaskFinished, TaskProgressed, Ticked, WorkerSeen
from services.router.core.job import JobRequest, Stage, StageSeconds, Task, WorkerInfo
from services.router.core.scheduler import Scheduler


def worker(
    worker_id: str,
    stage: Stage,
    models: Iterable[str] = ("m",),
    *,
    slots: int = 1,
    ready: bool = True,
    resident: Iterable[str] | None = None,
    **labels: str,
) -> WorkerInfo:
    """A worker with all of its models resident unless said otherwise."""
    known = frozenset(models)
    hot = known if resident is None else frozenset(resident)
    return WorkerInfo(worker_id, stage, known, hot, slots, ready, tuple(sorted(labels.items())))


def request(
    job_id: str,
    denoise_s: float,
    *,
    model: str = "m",
    tenant: str = "t",
    priority_class: str = "standard",
    encode_s: float = 0.0,
    decode_s: float = 0.0,
    outputs: int = 1,
    deadline_s: float | None = None,
) -> JobRequest:
    """A priced job."""
    seconds = StageSeconds(encode_s, denoise_s, decode_s)
    return JobRequest(job_id, tenant, model, priority_class, seconds, outputs, deadline_s)


@dataclass
class VirtualClock:
    """Runs a scheduler over arrivals until nothing is left to do.

    `waits` are seconds from submission to the first start of the denoise, `finishes` the times of the end, `log` every
    event with its time and its actions. Tasks of a worker run side by side, each in its own seconds, and report every
    `progress_s`.
    """

    scheduler: Scheduler
    progress_s: float = inf
    waits: dict[str, float] = field(default_factory=dict)
    finishes: dict[str, float] = field(default_factory=dict)
    refused: dict[str, Verdict] = field(default_factory=dict)
    log: list[tuple[float, Event, list[Action]]] = field(default_factory=list)
    _queue: list[tuple[float, int, Event]] = field(default_factory=list)
    _count: int = 0
    _calls: dict[Task, int] = field(default_factory=dict)
    _jobs: dict[str, tuple[float, JobRequest]] = field(default_factory=dict)

    def at(self, time_s: float, event: Event) -> None:
        """Let something happen at a time."""
        self._count += 1
        heappush(self._queue, (time_s, self._count, event))
        if isinstance(event, TaskFinished):
            self._calls[event.task] = self._count

    def fleet(self, *workers: WorkerInfo) -> None:
        """Let workers join before anything else."""
        for info in workers:
            self.at(0.0, WorkerSeen(info))

    def run(self, until_s: float = inf) -> None:
        """Until no event is left, or none up to a time."""
        while self._queue and self._queue[0][0] <= until_s:
            now, number, event = heappop(self._queue)
            if isinstance(event, TaskFinished) and self._calls.get(event.task) != number:
                continue  # that call was stopped
            if isinstance(event, JobSubmitted):
                self._jobs[event.request.job_id] = (now, event.request)
            actions = self.scheduler.handle(event, now)
            self.log.append((now, event, actions))
            for action in actions:
                self._perform(action, now)
            due_s = self.scheduler.next_tick_s()
            if not self._queue and due_s is not None:
                self.at(due_s, Ticked())

    def _perform(self, action: Action, now: float) -> None:
        match action:
            case StartTask(task):
                arrival_s, job = self._jobs[task.job_id]
                if task.stage is Stage.DENOISE:
                    self.waits.setdefault(task.job_id, now - arrival_s)
                seconds = {
                    Stage.ENCODE: job.seconds.encode_s,
                    Stage.DENOISE: job.seconds.denoise_s,
                    Stage.DECODE: job.seconds.decode_s / job.output_count,
                }[task.stage]
                for report in range(1, int(seconds / self.progress_s) + 1):
                    done_s = report * self.progress_s
                    self.at(now + done_s, TaskProgressed(task, done_s / seconds))
                self.at(now + seconds, TaskFinished(task, seconds))
            case RejectJob(job_id, verdict):
                self.refused[job_id] = verdict
            case StopTask(task):
                self._calls.pop(task, None)
            case FinishJob(job_id):
                self.finishes[job_id] = now
            case _:
                pass
