"""The workers, and what each has been given."""

from collections.abc import Callable, Sequence, Set

from services.router.core.cohort import Cohort, Kind
from services.router.core.config import PoolConfig
from services.router.core.job import STAGES, Stage, Task, WorkerInfo
from services.router.core.pools import reserve
from services.router.core.reach import Reach
from services.router.core.task import NOWHERE, Death, Key, TaskRecord
from services.router.core.worker import WorkerRecord


class Fleet:
    """Workers by id, and in cohorts. `reach` tells who may run what.

    `due` collects the stages for which a worker may have become free. `crowded` are the denoisers that have paused
    jobs. `live` counts the denoisers that take work. `stirred`: one has become crowded or idle, or is another one now.
    """

    def __init__(self, pools: Sequence[PoolConfig], due: set[Stage]) -> None:
        self.now = 0.0
        self.workers: dict[str, WorkerRecord] = {}
        self.crowded: dict[str, WorkerRecord] = {}
        self.live = 0
        self.stirred = False
        # Denoisers by the keys of jobs that may join them.
        self.company: dict[str, set[str]] = {}
        self._due = due
        self._shares: dict[str, float] = {}
        self._cohorts: dict[Kind, Cohort] = {}
        self.reach = Reach(pools, self._cohorts)

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

    def acquit(self, record: TaskRecord, of: Callable[[Death], bool] = lambda _: True) -> None:
        """Hold these deaths against a task no longer. Without any it may be joined by others, and join them."""
        record.deaths = tuple(death for death in record.deaths if not of(death))
        self._due.add(record.task.stage)
        worker = self.workers.get(record.worker_id)
        if worker is not None:
            self._moved(worker)

    def progressed(self, record: TaskRecord) -> None:
        """Note that a running task has less to run."""
        worker = self.workers.get(record.worker_id)
        if worker is not None and worker.cohort is not None:
            worker.cohort.shelve(worker)

    def share_out(self, pools: Sequence[PoolConfig], shares: dict[str, float]) -> None:
        """Reserve the denoisers anew: for other pools, or by other shares than the configured ones."""
        self.reach.pools, self._shares = pools, shares
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
        return any(cohort.idle and cohort.kind.stage is Stage.DENOISE for cohort in self._cohorts.values())

    @property
    def any_lent(self) -> bool:
        """Whether another pool's job runs on a denoiser."""
        return any(cohort.lending for cohort in self._cohorts.values())

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
        reserve(self.reach.pools, denoisers, self._shares)
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
            self.reach.note_leave(cohort.kind, self.now, 1.0 / worker.pace.ratio)
            cohort.unshelve(worker)
            worker.cohort = None
            cohort.size -= 1
            if not cohort.size:
                del self._cohorts[cohort.kind]
            self._reckon(cohort)

    def _reckon(self, cohort: Cohort) -> None:
        """Work out what the cohort can do."""
        shelves = (cohort.idle, cohort.roomy, cohort.full)
        paces = [self.workers[place[1]].pace.ratio for shelf in shelves for place in shelf]
        cohort.speed = sum(1.0 / pace for pace in paces)
        self._forget()

    def _forget(self) -> None:
        self.reach.forget()
        self.wake()


def _counted(info: WorkerInfo) -> object:
    """What decides the pool of a denoiser."""
    return (info.ready, info.labels)
