"""A driver of the scheduler whose clock jumps from event to event, with modelled workers in place of real ones."""

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from math import inf

from services.router.core.actions import Action, AdmitJob, FinishJob, RejectJob, StartTask, StopTask, Verdict
from services.router.core.events import (
    Event,
    JobSubmitted,
    TaskFinished,
    TaskProgressed,
    Ticked,
    WorkerLost,
    WorkerSeen,
)
from services.router.core.job import JobRequest, Stage, StageSeconds, WorkerInfo
from services.router.core.scheduler import Scheduler
from services.router.simulate.device import Call, Span
from services.router.simulate.machines import Machine, MachineModel, Machines

_Planned = Event | Callable[[], Event]


class VirtualClock:
    """Runs a scheduler over what is planned until nothing is left to do.

    Jobs take exactly their estimated seconds unless `truth` has others by job id. Running tasks report how far they
    are whenever somebody may ask, but each not more often than every `progress_s`.

    `waits` are seconds from submission to the first start of the denoise on a device, `predicted_waits` what was said
    of them on admission, `finishes` the times of the end, `outcomes` how each job ended, `refused` the verdicts of
    those that were not let in.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        model: MachineModel | None = None,
        *,
        truth: Mapping[str, StageSeconds] | None = None,
        progress_s: float = 0.0,
        spans: list[Span] | None = None,
        on_finish: Callable[[str], None] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.machines = Machines(model or MachineModel(), spans)
        self.now = 0.0
        self.waits: dict[str, float] = {}
        self.predicted_waits: dict[str, float] = {}
        self.finishes: dict[str, float] = {}
        self.outcomes: dict[str, str] = {}
        self.refused: dict[str, Verdict] = {}
        self._truth = truth or {}
        self._progress_s = progress_s
        self._on_finish = on_finish
        self._queue: list[tuple[float, int, _Planned | tuple[Machine, int]]] = []
        self._count = 0
        self._tick_s = inf
        self._jobs: dict[str, tuple[float, JobRequest]] = {}

    def at(self, time_s: float, event: _Planned) -> None:
        """Let something happen at a time; what is only known then is given as a function. Ties: first come first."""
        self._push(time_s, event)

    def fleet(self, *workers: WorkerInfo) -> None:
        """Let workers join before anything else."""
        for info in workers:
            self.at(0.0, WorkerSeen(info))

    def run(self, until_s: float = inf) -> None:
        """Until nothing is left to do, or nothing up to a time."""
        while self._queue and self._queue[0][0] <= until_s:
            self.step()
        if until_s < inf:
            self.now = max(self.now, until_s)
            self._report_progress()

    def step(self) -> None:
        """Let the next thing happen. Raises `IndexError` if nothing is left."""
        self.now, _, item = heappop(self._queue)
        if isinstance(item, tuple):
            machine, version = item
            if machine.device.version == version:
                self._advance(machine)
        else:
            self._handle(item() if callable(item) else item)

    def _push(self, time_s: float, item: _Planned | tuple[Machine, int]) -> None:
        self._count += 1
        heappush(self._queue, (time_s, self._count, item))

    def _advance(self, machine: Machine) -> None:
        call = self.machines.advance(machine, self.now)
        self._announce(machine)
        if call is not None:
            self._handle(TaskFinished(call.task, call.seconds))

    def _announce(self, machine: Machine) -> None:
        """Plan what the device will do next, and note the wait of a denoise that begins."""
        device = machine.device
        if device.next_s < inf:
            self._push(device.next_s, (machine, device.version))
        running = device.running
        if running is not None and running.task.stage is Stage.DENOISE and running.task.job_id not in self.waits:
            self.waits[running.task.job_id] = running.since_s - self._jobs[running.task.job_id][0]

    def _handle(self, event: Event) -> None:
        match event:
            case JobSubmitted(request):
                self._jobs[request.job_id] = (self.now, request)
                self._report_progress()
            case WorkerSeen(info):
                self.machines.see(info)
            case WorkerLost(worker_id):
                self.machines.lose(worker_id, self.now)
            case Ticked():
                self._tick_s = inf
            case _:
                pass
        for action in self.scheduler.handle(event, self.now):
            self._perform(action)
        due_s = self.scheduler.next_tick_s()
        if due_s is not None and due_s < self._tick_s:
            self._tick_s = due_s
            self._push(max(due_s, self.now), Ticked())

    def _perform(self, action: Action) -> None:
        match action:
            case StartTask():
                self._start(action)
            case StopTask(task):
                machine = self.machines.stop(task, self.now)
                if machine is not None:
                    self._announce(machine)
            case RejectJob(job_id, verdict):
                self.refused[job_id] = verdict
                del self._jobs[job_id]
            case FinishJob(job_id, outcome):
                self.finishes[job_id], self.outcomes[job_id] = self.now, outcome
                del self._jobs[job_id]
                if self._on_finish is not None:
                    self._on_finish(job_id)
            case AdmitJob(job_id):
                job = self.scheduler.job(job_id)
                assert job is not None
                self.predicted_waits[job_id] = job.wait_s
            case _:
                pass

    def _start(self, action: StartTask) -> None:
        job = self._jobs[action.task.job_id][1]
        seconds = self._truth.get(job.job_id, job.seconds)
        whole_s = {
            Stage.ENCODE: seconds.encode_s,
            Stage.DENOISE: seconds.denoise_s * (1 - len(action.finished_outputs) / job.output_count),
            Stage.DECODE: seconds.decode_s / job.output_count,
        }[action.task.stage]
        call = Call(action.task, action.rank, whole_s)
        self._announce(self.machines.start(action.worker_id, call, job.model, self.now))

    def _report_progress(self) -> None:
        for machine in self.machines:
            call = machine.device.running
            if call is not None and self.now >= machine.reported_s + self._progress_s:
                machine.reported_s = self.now
                done = call.done_by(self.now) / call.seconds if call.seconds else 1.0
                self.scheduler.handle(TaskProgressed(call.task, done), self.now)
