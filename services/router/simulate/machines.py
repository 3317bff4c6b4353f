"""The modelled workers of a fleet: what they hold, how fast they are, what they have been given."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import floor

from services.router.core.job import Stage, Task, WorkerInfo
from services.router.simulate.device import Call, Device, Span
from services.router.simulate.groups import speedup

CARDS_LABEL = "cards"
"""The label that says of how many cards a worker is a group."""


@dataclass(frozen=True, slots=True)
class MachineModel:
    """How modelled workers behave.

    `block_s`: seconds of a block, between which a worker may switch (0: only between calls). `load_s`: seconds to load
    a model that is not resident (by model, else 0). `checkpoint_s`: of a denoise whose worker is lost, what was done
    before the last multiple of it is kept.
    """

    block_s: float = 0.0
    load_s: Mapping[str, float] = field(default_factory=dict)
    checkpoint_s: float = 10.0


@dataclass(slots=True)
class Machine:
    """A worker. `resident`: its models that are loaded, the longest unused first; as many as it began with stay."""

    info: WorkerInfo
    device: Device
    speed: float
    resident: OrderedDict[str, None]
    reported_s: float = 0.0

    def load(self, model: str, most: int) -> bool:
        """Make the model resident in place of the longest unused; whether it was not."""
        cold = model not in self.resident
        self.resident[model] = None
        self.resident.move_to_end(model)
        while len(self.resident) > most:
            self.resident.popitem(last=False)
        return cold


class Machines:
    """All workers by id, and which of them runs which task."""

    def __init__(self, model: MachineModel, spans: list[Span] | None = None) -> None:
        self._model = model
        self._spans = spans
        self._by_id: dict[str, Machine] = {}
        self._places: dict[Task, Machine] = {}
        self._kept: dict[Task, float] = {}
        self._lost_busy_s: dict[Stage, float] = dict.fromkeys(Stage, 0.0)

    def __iter__(self) -> Iterator[Machine]:
        return iter(self._by_id.values())

    def see(self, info: WorkerInfo) -> None:
        """A worker joined, or changed what it offers."""
        known = self._by_id.get(info.worker_id)
        if known is not None:
            known.info = info
            return
        cards = int(dict(info.labels).get(CARDS_LABEL, 1))
        device = Device(info.worker_id, self._model.block_s, self._spans)
        resident = OrderedDict.fromkeys(sorted(info.resident))
        self._by_id[info.worker_id] = Machine(info, device, speedup(cards), resident)

    def start(self, worker_id: str, call: Call, model: str, now: float) -> Machine:
        """Give a worker a call, in seconds of a single card; what a lost worker had done of it is kept."""
        machine = self._by_id[worker_id]
        call.seconds /= machine.speed
        call.done_s = call.seconds * self._kept.pop(call.task, 0.0)
        cold_s = self._model.load_s.get(model, 0.0)
        load_s = cold_s if cold_s and machine.load(model, max(1, len(machine.info.resident))) else 0.0
        machine.device.give(call, now, load_s)
        self._places[call.task] = machine
        return machine

    def stop(self, task: Task, now: float) -> Machine | None:
        """Take a call from its worker, if it has it; what it has done since its last checkpoint is lost."""
        machine = self._places.pop(task, None)
        call = machine.device.stop(task, now) if machine else None
        if call is not None:
            self._keep(call, now)
        return machine

    def lose(self, worker_id: str, now: float) -> None:
        """A worker has gone, and its calls with it."""
        machine = self._by_id.pop(worker_id, None)
        if machine is None:
            return
        for call in machine.device.calls():
            machine.device.stop(call.task, now)
            del self._places[call.task]
            self._keep(call, now)
        self._lost_busy_s[machine.info.stage] += machine.device.busy_s

    def advance(self, machine: Machine, now: float) -> Call | None:
        """What the device announced: the call that ended, or None after a switch."""
        call = machine.device.advance(now)
        if call is not None:
            del self._places[call.task]
        return call

    def busy_s(self, stage: Stage) -> float:
        """Seconds for which workers of a stage ran something."""
        here = (machine.device.busy_s for machine in self if machine.info.stage is stage)
        return self._lost_busy_s[stage] + sum(here)

    def _keep(self, call: Call, now: float) -> None:
        done_s = call.done_by(now)
        if call.task.stage is Stage.DENOISE and self._model.checkpoint_s > 0:
            kept_s = floor(done_s / self._model.checkpoint_s) * self._model.checkpoint_s
            self._kept[call.task] = kept_s / call.seconds if kept_s else 0.0
