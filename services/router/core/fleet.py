"""The workers, who of them may run what, and what each has been given."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from services.router.core.config import PoolConfig
from services.router.core.job import Stage, WorkerInfo
from services.router.core.pools import reserve
from services.router.core.task import TaskRecord
from services.router.core.worker import WorkerRecord

Workers = tuple[WorkerRecord, ...]
_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")
_MAX_KEPT = 10_000


class Group(NamedTuple):
    """Work that is interchangeable to workers: a stage of the jobs of one pool and one model."""

    stage: Stage
    pool: str
    model: str


class Fleet:
    """Workers by id. Who suits whom is worked out once and kept until a worker changes."""

    def __init__(self, pools: Sequence[PoolConfig]) -> None:
        self.workers: dict[str, WorkerRecord] = {}
        self._pools = pools
        self._capable: dict[tuple[Stage, str], Workers] = {}
        self._suited: dict[Group, Workers] = {}
        self._overlaps: dict[tuple[Group, Group], float] = {}

    def see(self, info: WorkerInfo) -> None:
        """A worker joined or changed."""
        worker = self.workers.get(info.worker_id)
        if worker is None:
            self.workers[info.worker_id] = WorkerRecord(info)
        elif worker.info == info:
            return
        else:
            worker.info = info
        self._changed()

    def lose(self, worker_id: str) -> list[TaskRecord]:
        """Forget a worker; returns what it ran."""
        worker = self.workers.pop(worker_id, None)
        if worker is None:
            return []
        self._changed()
        for record in worker.running.values():
            record.worker_id = ""
        return list(worker.running.values())

    def give(self, worker: WorkerRecord, record: TaskRecord) -> None:
        """Note that the worker runs the task."""
        record.worker_id = worker.worker_id
        worker.running[record.task] = record

    def take(self, record: TaskRecord) -> None:
        """Note that the task's worker, if it is still there, does not run it any more."""
        worker = self.workers.get(record.worker_id)
        if worker is not None:
            worker.running.pop(record.task, None)
        record.worker_id = ""

    def of_stage(self, stage: Stage) -> list[WorkerRecord]:
        """Workers of a stage, by id."""
        return [worker for _, worker in sorted(self.workers.items()) if worker.info.stage is stage]

    def capable(self, stage: Stage, model: str) -> Workers:
        """Every worker that may be given this stage of the model."""
        return _kept(self._capable, (stage, model), lambda: self._find_capable(stage, model))

    def suited(self, group: Group) -> Workers:
        """The workers that the group may use as its own.

        For a denoise those of its pool, or every capable one where the pool has none, so that a job is never left
        without a worker for the sake of its pool; for the other stages every capable one.
        """
        return _kept(self._suited, group, lambda: self._find_suited(group))

    def overlap(self, group: Group, other: Group) -> float:
        """The part (0 to 1) of the other group's work that falls on workers of this group, if spread evenly."""
        return _kept(self._overlaps, (group, other), lambda: self._find_overlap(group, other))

    def _find_capable(self, stage: Stage, model: str) -> Workers:
        return tuple(worker for worker in self.of_stage(stage) if worker.can_run(model))

    def _find_suited(self, group: Group) -> Workers:
        capable = self.capable(group.stage, group.model)
        if group.stage is not Stage.DENOISE:
            return capable
        return tuple(worker for worker in capable if worker.pool == group.pool) or capable

    def _find_overlap(self, group: Group, other: Group) -> float:
        own = {worker.worker_id for worker in self.suited(group)}
        theirs = [worker.worker_id for worker in self.suited(other)]
        return sum(worker_id in own for worker_id in theirs) / len(theirs) if theirs else 0.0

    def _changed(self) -> None:
        reserve(self._pools, self.of_stage(Stage.DENOISE))
        self._capable.clear()
        self._suited.clear()
        self._overlaps.clear()


def _kept(answers: dict[_Question, _Answer], question: _Question, find: Callable[[], _Answer]) -> _Answer:
    answer = answers.get(question)
    if answer is None:
        if len(answers) >= _MAX_KEPT:  # anyone may ask about models that nobody has
            answers.clear()
        answer = answers[question] = find()
    return answer
