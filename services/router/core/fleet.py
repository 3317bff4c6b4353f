"""The workers, who of them may run what, and what each has been given."""

from collections.abc import Sequence, Set
from math import inf
from typing import TypeVar

from services.router.core.cohort import Cohort, Kind
from services.router.core.config import PoolConfig
from services.router.core.job import STAGES, Stage, Task, WorkerInfo
from services.router.core.pools import reserve
from services.router.core.task import NOWHERE, Key, TaskRecord
from services.router.core.worker import WorkerRecord

Cohorts = tuple[Cohort, ...]
Parts = tuple[float, float, float]
"""Numbers for encode, denoise and decode."""
_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")
_MAX_KEPT = 10_000
_MAX_LEFT = 1_000


class Fleet:
    """Workers by id, and in cohorts. Who suits whom is worked out once and kept until the cohorts change.

    `due` collects the stages for which a worker may have become free. `crowded` are the denoisers that have paused
    jobs. `live` counts the denoisers that take work. `stirred`: one has become crowded or idle, or is another one now.
    """

    def __init__(self, pools: Sequence[PoolConfig], due: set[Stage]) -> None:
        self.now = 0.0
        self.workers: dict[str, WorkerRecord] = {}
        self.crowded: dict[str, WorkerRecord] = {}
        self.live = 0
        self.stirred = False
        self._pools = pools
        # Denoisers by the keys of jobs that may join them.
        self.company: dict[str, set[str]] = {}
        self._due = due
        self._shares: dict[str, float] = {}
        self._cohorts: dict[Kind, Cohort] = {}
        self._capable: dict[tuple[Stage, str], Cohorts] = {}
        self._suited: dict[tuple[Stage, str, str], Cohorts] = {}
        self._borrowable: dict[tuple[str, str], Cohorts] = {}
        self._speeds: dict[tuple[str, str], Parts] = {}
        self._overlaps: dict[tuple[str, str, str, str], Parts] = {}
        # Of each stage and model the worker that went last: when, and its speed. The latest are at the end.
        self._left: dict[tuple[Stage, str], tuple[float, float]] = {}

    def see(self, info: WorkerInfo) -> None:
        """A worker joined or changed."""
        worker = self.workers.get(info.worker_id)
        if worker is None:
            worker = self.workers[info.worker_id] = WorkerRecord(info, idle_since_s=self.now)
            known = None
        elif worker.info == info:
            return
        else:
            known, worker.info = worker.info, info
        if info.stage is Stage.DENOISE and (known is None or _counted(known) != _counted(info)):
            self._reserve()
        self._settle(worker)
        if info.stage is Stage.DENOISE:
            self._keep_company(worker, worker.joinable)

    def lose(self, worker_id: str, unbegun: Set[Task] = frozenset()) -> list[tuple[TaskRecord, bool]]:
        """Forget a worker; returns what it ran, and of each whether it had the device: the first begun, in order."""
        worker = self.workers.pop(worker_id, None)
        if worker is None:
            return []
        self.crowded.pop(worker_id, None)
        self._leave(worker)
        self._keep_company(worker, frozenset())
        if worker.info.stage is Stage.DENOISE:
            self._reserve()
        records = list(worker.running.values())
        first = min((record.order for record in records if record.task not in unbegun), default=NOWHERE)
        lost = [(record, record.order == first) for record in records]
        for record in records:
            record.worker_id, record.order, record.lent = "", NOWHERE, False
        return lost

    def give(self, worker: WorkerRecord, record: TaskRecord, order: Key, lent: bool = False) -> None:
        """Note that the worker runs the task, which has this place among those that it runs."""
        record.worker_id, record.order, record.lent = worker.info.worker_id, order, lent
        worker.running[record.task] = record
        self._moved(worker)

    def take(self, record: TaskRecord) -> None:
        """Note that the task's worker, if it is still there, does not run it any more."""
        worker = self.workers.get(record.worker_id)
        record.worker_id, record.order, record.lent = "", NOWHERE, False
        if worker is None or worker.running.pop(record.task, None) is None:
            return
        if not worker.running:
            worker.idle_since_s = self.now
        self._due.add(record.task.stage)
        self._moved(worker)

    def reorder(self, record: TaskRecord, rank: float) -> None:
        """Note that a running denoise has another rank, or less or more to run."""
        worker = self.workers.get(record.worker_id)
        if worker is not None:
            record.order = (rank, record.task.job_id, 0)
            self._due.add(record.task.stage)
            self._moved(worker)

    def observe(self, record: TaskRecord, seconds: float) -> None:
        """Learn from a task that its worker did from its beginning to its end, in so many seconds."""
        worker = self.workers.get(record.worker_id)
        if worker is None:
            return
        before = worker.pace.step
        worker.pace.observe(record.seconds * record.share, seconds)
        if worker.cohort is not None and worker.pace.step != before:
            self._reckon(worker.cohort)

    def acquit(self, record: TaskRecord) -> None:
        """Note that a running suspect is none any more: others may join it."""
        record.suspect = False
        worker = self.workers.get(record.worker_id)
        if worker is not None:
            self._due.add(record.task.stage)
            self._moved(worker)

    def progressed(self, record: TaskRecord) -> None:
        """Note that a running task has less to run."""
        worker = self.workers.get(record.worker_id)
        if worker is not None and worker.cohort is not None:
            worker.cohort.shelve(worker)

    def share_out(self, pools: Sequence[PoolConfig], shares: dict[str, float]) -> None:
        """Reserve the denoisers anew: for other pools, or by other shares than the configured ones."""
        self._pools, self._shares = pools, shares
        self._reserve()
        self._forget()

    def wake(self) -> None:
        """Let everything be looked at again."""
        self._due.update(STAGES)
        self.stirred = True

    def of_stage(self, stage: Stage) -> list[WorkerRecord]:
        """Workers of a stage, by id."""
        return [worker for _, worker in sorted(self.workers.items()) if worker.info.stage is stage]

    @property
    def any_idle(self) -> bool:
        """Whether a denoiser that takes work has nothing to do."""
        return any(cohort.idle for cohort in self._cohorts.values() if cohort.kind.stage is Stage.DENOISE)

    def capable(self, stage: Stage, model: str) -> Cohorts:
        """Every worker that may be given this stage of the model."""
        key = (stage, model)
        known = self._capable.get(key)
        return known if known is not None else _keep(self._capable, key, self._find_capable(stage, model))

    def left_s(self, stage: Stage, model: str) -> float:
        """When a worker last went, or stopped taking work, that ran this stage of the model; -inf if none is known."""
        return self._left.get((stage, model), (-inf, 1.0))[0]

    def suited(self, stage: Stage, pool: str, model: str) -> Cohorts:
        """The workers that this stage of the jobs of a pool and model may use as its own.

        For a denoise those of its pool, or every capable one where the pool has none, so that a job is never left
        without a worker for the sake of its pool; for the other stages every capable one.
        """
        key = (stage, pool, model)
        known = self._suited.get(key)
        return known if known is not None else _keep(self._suited, key, self._find_suited(stage, pool, model))

    def borrowable(self, pool: str, model: str) -> Cohorts:
        """The denoisers of other pools that jobs of a pool and model may borrow: busy ones need a slot to spare."""
        key = (pool, model)
        known = self._borrowable.get(key)
        return known if known is not None else _keep(self._borrowable, key, self._find_borrowable(pool, model))

    def speeds(self, pool: str, model: str) -> Parts:
        """Estimated seconds a second that the workers of a pool and model do at each stage.

        Where there are none, what the one did that went last, or 1.
        """
        key = (pool, model)
        known = self._speeds.get(key)
        return known if known is not None else _keep(self._speeds, key, self._find_speeds(pool, model))

    def overlaps(self, pool: str, model: str, other_pool: str, other_model: str) -> Parts:
        """The parts (0 to 1) of the other's work that fall on workers of the first, if it is spread evenly.

        All of it where neither has any: they wait for the same ones.
        """
        key = (pool, model, other_pool, other_model)
        known = self._overlaps.get(key)
        return known if known is not None else _keep(self._overlaps, key, self._find_overlaps(*key))

    def _find_capable(self, stage: Stage, model: str) -> Cohorts:
        return tuple(cohort for kind, cohort in self._cohorts.items() if kind.stage is stage and model in kind.models)

    def _find_suited(self, stage: Stage, pool: str, model: str) -> Cohorts:
        capable = self.capable(stage, model)
        if stage is not Stage.DENOISE:
            return capable
        return tuple(cohort for cohort in capable if cohort.kind.pool == pool) or capable

    def _find_borrowable(self, pool: str, model: str) -> Cohorts:
        borrow = next((each.borrow for each in self._pools if each.name == pool), "none")
        if borrow == "none":
            return ()
        slots = 2 if borrow == "preemptible" else 1
        own = self.suited(Stage.DENOISE, pool, model)
        found = self.capable(Stage.DENOISE, model)
        return tuple(cohort for cohort in found if cohort not in own and cohort.kind.slots >= slots)

    def _find_speeds(self, pool: str, model: str) -> Parts:
        encode, denoise, decode = (
            sum(cohort.speed for cohort in self.suited(stage, pool, model))
            or self._left.get((stage, model), (-inf, 1.0))[1]
            for stage in Stage
        )
        return (encode, denoise, decode)

    def _find_overlaps(self, pool: str, model: str, other_pool: str, other_model: str) -> Parts:
        encode, denoise, decode = (
            _overlap(self.suited(stage, pool, model), self.suited(stage, other_pool, other_model)) for stage in Stage
        )
        return (encode, denoise, decode)

    def _moved(self, worker: WorkerRecord) -> None:
        if worker.cohort is not None:
            worker.cohort.shelve(worker)
        if worker.info.stage is Stage.DENOISE:
            if worker.info.merge_keys or worker.company:
                self._keep_company(worker, worker.joinable)
            if len(worker.running) > 1:
                self.crowded[worker.info.worker_id] = worker
                self.stirred = True
            else:
                self.crowded.pop(worker.info.worker_id, None)
                self.stirred |= not worker.running

    def _keep_company(self, worker: WorkerRecord, keys: frozenset[str]) -> None:
        """Note which jobs may join the worker's own."""
        if keys == worker.company:
            return
        for key in worker.company - keys:
            self.company[key].discard(worker.info.worker_id)
            if not self.company[key]:
                del self.company[key]
        for key in keys - worker.company:
            self.company.setdefault(key, set()).add(worker.info.worker_id)
        worker.company = keys
        self._due.add(Stage.DENOISE)

    def _reserve(self) -> None:
        denoisers = self.of_stage(Stage.DENOISE)
        before = [worker.pool for worker in denoisers]
        reserve(self._pools, denoisers, self._shares)
        for worker, pool in zip(denoisers, before, strict=True):
            if worker.pool != pool:
                self._settle(worker)
        self.live = sum(worker.info.ready for worker in denoisers)

    def _settle(self, worker: WorkerRecord) -> None:
        """Put a worker that joined or changed into the cohort that it belongs to."""
        info = worker.info
        kind = Kind(info.stage, worker.pool, info.models, info.resident, info.slots) if info.ready else None
        if worker.cohort is None or worker.cohort.kind != kind:
            self._leave(worker)
            if kind is not None:
                cohort = self._cohorts.get(kind)
                if cohort is None:
                    cohort = self._cohorts[kind] = Cohort(kind)
                worker.cohort = cohort
                cohort.size += 1
                cohort.shelve(worker)
                self._reckon(cohort)

    def _leave(self, worker: WorkerRecord) -> None:
        cohort = worker.cohort
        if cohort is not None:
            self._note_leave(cohort, worker)
            cohort.unshelve(worker)
            worker.cohort = None
            cohort.size -= 1
            if not cohort.size:
                del self._cohorts[cohort.kind]
            self._reckon(cohort)

    def _note_leave(self, cohort: Cohort, worker: WorkerRecord) -> None:
        for model in cohort.kind.models:
            key = (cohort.kind.stage, model)
            self._left.pop(key, None)
            self._left[key] = (self.now, 1.0 / worker.pace.ratio)
        while len(self._left) > _MAX_LEFT:
            del self._left[next(iter(self._left))]

    def _reckon(self, cohort: Cohort) -> None:
        """Work out what the cohort can do."""
        shelves = (cohort.idle, cohort.roomy, cohort.full)
        paces = [self.workers[place[1]].pace.ratio for shelf in shelves for place in shelf]
        cohort.speed = sum(1.0 / pace for pace in paces)
        self._forget()

    def _forget(self) -> None:
        self._capable.clear()
        self._suited.clear()
        self._borrowable.clear()
        self._speeds.clear()
        self._overlaps.clear()
        self.wake()


def _counted(info: WorkerInfo) -> object:
    """What decides the pool of a denoiser."""
    return (info.ready, info.labels)


def _overlap(own: Cohorts, theirs: Cohorts) -> float:
    size = sum(cohort.size for cohort in theirs)
    if not size:
        return 0.0 if own else 1.0
    return sum(cohort.size for cohort in theirs if cohort in own) / size


def _keep(answers: dict[_Question, _Answer], question: _Question, answer: _Answer) -> _Answer:
    if len(answers) >= _MAX_KEPT:  # anyone may ask about models that nobody has
        answers.clear()
    answers[question] = answer
    return answer
