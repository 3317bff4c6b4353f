"""Workers on a virtual clock whose latents and outputs go to stores with little room."""

from collections import defaultdict
from dataclasses import dataclass
from heapq import heappop, heappush

from services.router.core.actions import Action, FinishJob, GiveBack, StartTask, StopTask
from services.router.core.config import SchedulerConfig
from services.router.core.events import Event, JobSubmitted, LatentsReady, TaskFailed, TaskFinished, Ticked, WorkerSeen
from services.router.core.job import Stage, Task
from services.router.core.scheduler import Scheduler
from tests.scenarios.invariants import check
from tests.scenarios.virtual_clock import request, worker


@dataclass(frozen=True)
class NarrowJob:
    """So many outputs; what one takes to denoise and decode, in seconds, and its latents and file in each store.

    `pace`: seconds that it takes per second estimated. `refined`: what of another job's latents is kept for it.
    """

    outputs: int
    denoise_s: float
    decode_s: float
    latents: int
    file: int
    pace: float = 1.0
    refined: int = 0


# Between two looks of a denoiser for room, in seconds.
_PAUSE_S = 10.0


class NarrowStores:
    """What was made of a job stays until it is over, and `kept_s` seconds longer, unless it is given back.

    A denoiser waits for room itself, `wait_s` seconds, before it says that there is none.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        denoisers: int,
        decoders: int,
        limit: int,
        kept_s: float,
        wait_s: float = 0.0,
    ) -> None:
        self.scheduler = Scheduler(config)
        self.ended: dict[str, str] = {}
        self.given = 0
        self._now = 0.0
        self._limit, self._kept_s, self._wait_s = limit, kept_s, wait_s
        self._jobs: dict[str, NarrowJob] = {}
        # By stage and job, the outputs that lie in its store.
        self._stored: dict[Stage, defaultdict[str, set[int]]] = {
            stage: defaultdict(set) for stage in (Stage.DENOISE, Stage.DECODE)
        }
        self._refined: dict[str, int] = {}
        # Of a running denoise, the outputs that it is to make, and since when it waits for room.
        self._targets: dict[str, list[int]] = {}
        self._full_since: dict[Task, float] = {}
        self._due: list[tuple[float, int, Task | str, int]] = []
        self._count = 0
        self._calls: dict[Task, int] = {}
        counts = {Stage.ENCODE: 1, Stage.DENOISE: denoisers, Stage.DECODE: decoders}
        for stage, count in counts.items():
            for index in range(count):
                self._send(WorkerSeen(worker(f"{stage.value}{index}", stage)))

    def submit(self, job_id: str, job: NarrowJob) -> None:
        self._jobs[job_id] = job
        if job.refined:
            self._refined[job_id] = job.refined
        total_s, decode_s = job.outputs * job.denoise_s, job.outputs * job.decode_s
        wanted = request(job_id, total_s, decode_s=decode_s, outputs=job.outputs)
        self._send(JobSubmitted(wanted, refines=job.refined > 0))

    def run(self, until_s: float) -> None:
        """Until all jobs are over, or that time has come."""
        while len(self.ended) < len(self._jobs) and self._now < until_s:
            tick_s = self.scheduler.next_tick_s()
            if self._due and (tick_s is None or self._due[0][0] <= tick_s):
                self._now, number, what, index = heappop(self._due)
                self._happen(number, what, index)
            else:
                assert tick_s is not None, "nobody does anything any more"
                self._now = max(self._now, tick_s)
                self._send(Ticked())

    def _happen(self, number: int, what: Task | str, index: int) -> None:
        if isinstance(what, str):
            for stored in self._stored.values():
                stored.pop(what, None)
            self._refined.pop(what, None)
        elif self._calls.get(what) == number:
            if what.stage is Stage.ENCODE:
                self._end(what, TaskFinished(what, 0.0))
            else:
                self._store(what, index)

    def _store(self, task: Task, index: int) -> None:
        size = self._size(task.stage, task.job_id)
        if self._used(task.stage) + size > self._limit:
            since_s = self._full_since.setdefault(task, self._now)
            if task.stage is Stage.DENOISE and self._now < since_s + self._wait_s:
                self._calls[task] = self._after(_PAUSE_S, task, index)
                return
            full = TaskFailed(task, "STORE_FULL", "", retryable=True, counts=False, awaits_room=True)
            self._end(task, full)
            return
        self._full_since.pop(task, None)
        self._stored[task.stage][task.job_id].add(index)
        if task.stage is Stage.DECODE:
            self._end(task, TaskFinished(task, 1.0))
            return
        self._send(LatentsReady(task.job_id, index))
        self._targets[task.job_id].remove(index)
        if self._targets[task.job_id]:
            self._next_latents(task)
        else:
            self._end(task, TaskFinished(task, 1.0))

    def _next_latents(self, task: Task) -> None:
        job_id = task.job_id
        job = self._jobs[job_id]
        self._calls[task] = self._after(job.pace * job.denoise_s, task, self._targets[job_id][0])

    def _size(self, stage: Stage, job_id: str) -> int:
        return self._jobs[job_id].file if stage is Stage.DECODE else self._jobs[job_id].latents

    def _used(self, stage: Stage) -> int:
        refined = sum(self._refined.values()) if stage is Stage.DENOISE else 0
        return refined + sum(self._size(stage, job_id) * len(there) for job_id, there in self._stored[stage].items())

    def _after(self, delay_s: float, what: Task | str, index: int = 0) -> int:
        self._count += 1
        heappush(self._due, (self._now + delay_s, self._count, what, index))
        return self._count

    def _end(self, task: Task, event: Event) -> None:
        self._calls.pop(task, None)
        self._full_since.pop(task, None)
        self._send(event)

    def _send(self, event: Event) -> None:
        for action in self.scheduler.handle(event, self._now):
            self._perform(action)
        check(self.scheduler)

    def _perform(self, action: Action) -> None:
        match action:
            case StartTask(task):
                job = self._jobs[task.job_id]
                match task.stage:
                    case Stage.ENCODE:
                        self._calls[task] = self._after(0.0, task)
                    case Stage.DENOISE:
                        there = self._stored[Stage.DENOISE][task.job_id] | self._stored[Stage.DECODE][task.job_id]
                        assert action.finished_outputs == there
                        self._targets[task.job_id] = sorted(set(range(job.outputs)) - there)
                        self._next_latents(task)
                    case Stage.DECODE:
                        assert task.output_index in self._stored[Stage.DENOISE][task.job_id]
                        self._calls[task] = self._after(job.pace * job.decode_s, task, task.output_index)
            case StopTask(task):
                self._calls.pop(task, None)
            case GiveBack(job_id, _, stage):
                refined = stage is Stage.DENOISE and self._refined.pop(job_id, 0)
                assert self._stored[stage].pop(job_id, None) or refined, "there was nothing to give back"
                self.given += 1
            case FinishJob(job_id, outcome):
                self.ended[job_id] = outcome
                self._after(self._kept_s, job_id)
