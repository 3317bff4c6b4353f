"""Stories of the scheduler as text: what happens to a fleet above the line, what the scheduler does about it below.

Above the line, after a paragraph that says what the story is about, one a line: `pool NAME setting=value…`,
`scheduler setting=value…`, `encoder|denoiser|decoder NAME setting=value…`, `at SECONDS submit JOB of SECONDS s by
TENANT setting=value…`, `at SECONDS cancel JOB`, `at SECONDS lose WORKER`, `at SECONDS join KIND NAME setting=value…`,
`at SECONDS slow WORKER by FACTOR` (from then on all takes it so many times as long as on a good day).

Encoders and decoders work on all their tasks at once. A denoiser runs the best-ranked of its jobs, the others pause.

    python -m tests.scenarios.golden --write    # writes what is below the line anew
"""

import ast
import sys
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

from services.router.core.actions import (
    Action,
    AdmitJob,
    FinishJob,
    RejectJob,
    RequeueJob,
    StartTask,
    StopTask,
)
from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.events import (
    Event,
    JobCancelRequested,
    JobSubmitted,
    TaskFinished,
    Ticked,
    WorkerLost,
    WorkerSeen,
)
from services.router.core.job import JobRequest, Stage, Task, WorkerInfo
from services.router.core.scheduler import Scheduler
from tests.scenarios.invariants import check
from tests.scenarios.virtual_clock import request, worker

STORIES = sorted(Path(__file__).parent.glob("*.txt"))
LINE = "-" * 100
_STAGES = {"encoder": Stage.ENCODE, "denoiser": Stage.DENOISE, "decoder": Stage.DECODE}


def script_of(text: str) -> str:
    """The part above the line."""
    return text.partition(LINE)[0].strip() + "\n"


def told(text: str) -> str:
    """The whole story, its lower part worked out."""
    script = script_of(text)
    return f"{script}\n{LINE}\n{Playhouse(script).play()}"


@dataclass
class _Call:
    """A task on its worker, the seconds that it still takes on a good day, and those that it took in all."""

    start: StartTask
    left_s: float
    taken_s: float = 0.0

    @property
    def order(self) -> tuple[float, str]:
        return (self.start.rank, self.start.task.job_id)


@dataclass(frozen=True)
class _Slowed:
    """A worker takes so many times as long from now on. Nobody tells the scheduler."""

    worker_id: str
    factor: float


@dataclass
class Playhouse:
    """Plays one script on a clock that jumps from event to event."""

    script: str
    now: float = 0.0
    _lines: list[str] = field(default_factory=list)
    _outside: list[tuple[float, str, Event | _Slowed]] = field(default_factory=list)
    _slowness: dict[str, float] = field(default_factory=dict)
    _jobs: dict[str, JobRequest] = field(default_factory=dict)
    _stages: dict[str, Stage] = field(default_factory=dict)
    _calls: dict[Task, _Call] = field(default_factory=dict)
    # Seconds that are left of a denoise that was stopped, by its checkpoint.
    _kept: dict[Task, float] = field(default_factory=dict)

    def play(self) -> str:
        config, crew = self._read()
        self._scheduler = Scheduler(config)
        for info in crew:
            self._stages[info.worker_id] = info.stage
            self._scheduler.handle(WorkerSeen(info), 0.0)
        while True:
            finish_s, task = min(((left_s, task) for left_s, task in self._finishes()), default=(inf, None), key=_first)
            tick_s = self._scheduler.next_tick_s() or inf
            outside_s = self._outside[0][0] if self._outside else inf
            at_s = min(self.now + finish_s, tick_s, outside_s)
            if at_s == inf:
                return "\n".join(self._lines) + "\n"
            self._work(at_s - self.now)
            self.now = at_s
            if outside_s == at_s:
                _, words, event = self._outside.pop(0)
                if isinstance(event, _Slowed):
                    self._slowness[event.worker_id] = event.factor
                    self._lines.append(f"{self.now:8.2f}  {words}")
                else:
                    self._tell(words, event)
            elif task is not None and self._calls[task].left_s <= 1e-9:
                call = self._calls.pop(task)
                self._tell(f"{_what(task)} is done", TaskFinished(call.start.task, call.taken_s))
            else:
                self._tell("", Ticked())

    def _finishes(self) -> list[tuple[float, Task]]:
        running = [(task, call) for task, call in self._calls.items() if self._runs(call)]
        return [(call.left_s * self._slowness.get(call.start.worker_id, 1.0), task) for task, call in running]

    def _runs(self, call: _Call) -> bool:
        if call.start.task.stage is not Stage.DENOISE:
            return True
        others = [other for other in self._calls.values() if other.start.worker_id == call.start.worker_id]
        return call.order == min(other.order for other in others)

    def _work(self, seconds: float) -> None:
        for call in [call for call in self._calls.values() if self._runs(call)]:
            call.left_s -= seconds / self._slowness.get(call.start.worker_id, 1.0)
            call.taken_s += seconds

    def _tell(self, words: str, event: Event) -> None:
        if isinstance(event, WorkerLost):
            self._calls = {t: call for t, call in self._calls.items() if call.start.worker_id != event.worker_id}
        if isinstance(event, WorkerSeen):
            self._stages[event.worker.worker_id] = event.worker.stage
        actions = self._scheduler.handle(event, self.now)
        check(self._scheduler)
        said = [self._perform(action) for action in actions]
        for index, line in enumerate(said or ([""] if words else [])):
            left = f"{self.now:8.2f}  {words if index == 0 else ''}" if index == 0 else ""
            self._lines.append(f"{left:46}{line}".rstrip())

    def _perform(self, action: Action) -> str:
        match action:
            case AdmitJob(job_id, verdict):
                return f"admit {job_id} to {verdict.pool}, rank {verdict.rank:.1f}"
            case RejectJob(job_id, v):
                figures = f"{v.backlog_s:.1f} s ahead, limit {v.limit_s:.1f}, again in {v.retry_after_s:.1f} s"
                return f"reject {job_id}: {v.reason} ({figures})"
            case StartTask(task, worker_id):
                self._calls[task] = _Call(action, self._kept.pop(task, self._seconds(task)))
                return f"{_what(task)} on {worker_id}: {action.reason}"
            case StopTask(task, worker_id, reason):
                call = self._calls.pop(task)
                if reason != "ended":
                    self._kept[task] = call.left_s
                return f"stop {_what(task)} on {worker_id}: {reason}"
            case RequeueJob(job_id, _, reason, stage):
                return f"{stage.value} {job_id} again: {reason}"
            case FinishJob(job_id, outcome, reason):
                return f"{job_id} {outcome}{reason and f': {reason}'}"

    def _seconds(self, task: Task) -> float:
        job = self._jobs[task.job_id]
        by_stage = {Stage.ENCODE: job.seconds.encode_s, Stage.DENOISE: job.seconds.denoise_s}
        return by_stage.get(task.stage, job.seconds.decode_s / job.output_count)

    def _read(self) -> tuple[SchedulerConfig, list[WorkerInfo]]:
        pools: list[PoolConfig] = []
        config = SchedulerConfig()
        crew = []
        for line in self.script.partition("\n\n")[2].splitlines():
            match line.split():
                case ["pool", name, *settings]:
                    pools.append(PoolConfig(name, **_settings(settings)))
                case ["scheduler", *settings]:
                    config = replace(config, **_settings(settings))
                case [kind, name, *settings] if kind in _STAGES:
                    crew.append(_worker(kind, name, settings))
                case ["at", at_s, *rest]:
                    self._outside.append((float(at_s), *self._event(rest)))
                case []:
                    pass
                case _:
                    raise ValueError(f"what is {line!r}?")
        self._outside.sort(key=lambda each: each[0])
        return replace(config, pools=tuple(pools) or config.pools), crew

    def _event(self, words: list[str]) -> tuple[str, Event | _Slowed]:
        match words:
            case ["submit", job_id, "of", seconds, "s", "by", tenant, *settings]:
                job = request(job_id, float(seconds), tenant=tenant, **_settings(settings))
                self._jobs[job_id] = job
                return f"{tenant} asks for {job_id}", JobSubmitted(job)
            case ["cancel", job_id]:
                return f"{job_id} is cancelled", JobCancelRequested(job_id)
            case ["slow", worker_id, "by", factor]:
                return f"{worker_id} takes {factor} times as long", _Slowed(worker_id, float(factor))
            case ["lose", worker_id]:
                return f"{worker_id} dies", WorkerLost(worker_id)
            case ["join", kind, name, *settings]:
                return f"{name} joins", WorkerSeen(_worker(kind, name, settings))
            case _:
                raise ValueError(f"what is {' '.join(words)!r}?")


def _worker(kind: str, name: str, settings: list[str]) -> WorkerInfo:
    return worker(name, _STAGES[kind], **_settings(settings))


def _settings(words: list[str]) -> dict[str, Any]:
    """`name=value` by name; a value that is no Python literal is a word."""
    made = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            made[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            made[name] = value
    return made


def _what(task: Task) -> str:
    output = f" {task.output_index}" if task.output_index else ""
    return f"{task.stage.value} {task.job_id}{output}"


def _first(pair: tuple[float, Task | None]) -> tuple[float, str]:
    left_s, task = pair
    return (left_s, f"{task.stage.value} {task.job_id} {task.output_index}" if task else "")


if __name__ == "__main__":
    for story in STORIES:
        text = story.read_text()
        if "--write" in sys.argv[1:]:
            story.write_text(told(text))
        elif told(text) != text:
            sys.exit(f"{story.name} tells it differently")
