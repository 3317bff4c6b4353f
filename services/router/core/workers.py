"""Workers: what each runs, which pool it is reserved for, and which of them may run what."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import floor, inf, log
from typing import Any

from services.router.core.config import PoolConfig
from services.router.core.job import Stage, Task, WorkerInfo
from services.router.core.jobs import Call, Job
from services.router.core.ranking import Key

LAST: Key = (inf, "", 0)
"""A place behind every job."""

_SLOWDOWN_WEIGHT = 0.2
_SLOWDOWN_SAMPLES = 5
_SLOWDOWN_MOST = 16.0
_MAX_LEFT = 1_000


@dataclass(slots=True, eq=False)
class Worker:
    """A worker and the tasks that it runs. `pool` is the pool that it is reserved for, "" for encoders and decoders.

    `slowdown` is the seconds that its tasks take per second estimated: a moving average as it was when it last changed
    by a step, 1 until there are enough measurements. `open`: it takes work and has a slot left; `front`: the best rank
    of what it runs. Both follow from the rest and are kept by `settle`.
    """

    info: WorkerInfo
    pool: str = ""
    running: dict[Task, Job] = field(default_factory=dict)
    slowdown: float = 1.0
    open: bool = False
    front: Key = LAST
    _measured: float = 1.0
    _samples: int = 0

    @property
    def worker_id(self) -> str:
        return self.info.worker_id

    @property
    def idle(self) -> bool:
        return not self.running

    @property
    def load_s(self) -> float:
        """Seconds until all that it runs is done."""
        return self.slowdown * sum([job.remaining(task) for task, job in self.running.items()])

    @property
    def slowdown_step(self) -> int:
        """The slowdown in steps of half as much again: smaller differences are no reason to prefer a worker."""
        return _step(self.slowdown)

    def settle(self) -> None:
        """Derive `open` and `front`. A suspect has its worker to itself."""
        full = 0 < self.info.slots <= len(self.running) or any(
            job.is_suspect(task) for task, job in self.running.items()
        )
        self.open = self.info.ready and not full
        self.front = min([job.key for job in self.running.values()], default=LAST)

    def observe(self, estimate_s: float, seconds: float) -> bool:
        """Learn what a task took; returns whether the slowdown is another one now.

        One task counts as twice or half of what was known at most: the first of a model is estimated by a prior alone.
        """
        if not (estimate_s > 0 and 0 < seconds < inf):
            return False
        ratio = min(max(seconds / estimate_s, self._measured / 2, 1 / _SLOWDOWN_MOST), self._measured * 2)
        self._measured += _SLOWDOWN_WEIGHT * (min(ratio, _SLOWDOWN_MOST) - self._measured)
        self._samples += 1
        changes = self._samples >= _SLOWDOWN_SAMPLES and _step(self._measured) != self.slowdown_step
        if changes:
            self.slowdown = self._measured
        return changes


def _step(slowdown: float) -> int:
    return round(log(slowdown) / log(1.5))


class Workers:
    """Workers by id, and which of them may run what.

    Answers about eligibility are kept until a worker, or the pools, change. `changed` collects the stages at which
    something new may be able to start; the job table's. `live` counts the denoisers that take work.
    """

    def __init__(self, pools: Sequence[PoolConfig], changed: set[Stage]) -> None:
        self.pools = pools
        self.by_id: dict[str, Worker] = {}
        self.live = 0
        self.now = 0.0
        self._changed = changed
        self._answers: dict[tuple[Any, ...], Any] = {}
        # By stage and model: when the worker left that left last, and its speed. The latest are at the end.
        self._left: dict[tuple[Stage, str], tuple[float, float]] = {}

    def see(self, info: WorkerInfo) -> None:
        """A worker joined, or its heartbeat changed."""
        worker = self.by_id.get(info.worker_id)
        if worker is None:
            worker = self.by_id[info.worker_id] = Worker(info)
        elif worker.info == info:
            return
        elif worker.info.ready:
            self._note_leave(worker, worker.info.models - info.models if info.ready else worker.info.models)
        worker.info = info
        self._rearrange()

    def lose(self, worker_id: str) -> Worker | None:
        """Forget a worker; returns it, with what it ran."""
        worker = self.by_id.pop(worker_id, None)
        if worker is not None:
            if worker.info.ready:
                self._note_leave(worker, worker.info.models)
            self._rearrange()
        return worker

    def reserve_for(self, pools: Sequence[PoolConfig]) -> None:
        """Reserve the denoisers for other pools."""
        self.pools = pools
        self._rearrange()

    def give(self, worker: Worker, job: Job, task: Task, targets: frozenset[int] = frozenset()) -> None:
        """Note that the worker runs the task."""
        job.calls[task] = Call(worker.worker_id, targets)
        worker.running[task] = job
        worker.settle()

    def take(self, job: Job, task: Task) -> None:
        """Note that the task runs no longer."""
        call = job.calls.pop(task, None)
        worker = self.by_id.get(call.worker_id) if call is not None else None
        if worker is not None and worker.running.pop(task, None) is not None:
            self._changed.add(task.stage)
            worker.settle()

    def settle(self, job: Job, task: Task) -> None:
        """Note that a running task has another rank, or is a suspect no longer."""
        call = job.calls.get(task)
        worker = self.by_id.get(call.worker_id) if call is not None else None
        if worker is not None:
            self._changed.add(task.stage)
            worker.settle()

    def observe(self, job: Job, task: Task, seconds: float) -> None:
        """Learn from a task that its worker ran from beginning to end in `seconds`."""
        worker = self.by_id.get(job.calls[task].worker_id)
        if worker is not None and worker.observe(_whole_s(job, task), seconds):
            self._forget()

    def of_stage(self, stage: Stage) -> list[Worker]:
        """Return the workers of a stage, by id."""
        return [worker for _, worker in sorted(self.by_id.items()) if worker.info.stage is stage]

    def capable(self, stage: Stage, model: str) -> tuple[Worker, ...]:
        """Return every worker that takes work and may run this stage of the model."""
        key = (stage, model)
        if key not in self._answers:
            self._keep(key, tuple(w for w in self.of_stage(stage) if w.info.ready and model in w.info.models))
        found: tuple[Worker, ...] = self._answers[key]
        return found

    def own(self, pool: str, model: str) -> tuple[Worker, ...]:
        """Return the denoisers of the pool, or every capable one where the pool has none for this model."""
        key = ("own", pool, model)
        if key not in self._answers:
            capable = self.capable(Stage.DENOISE, model)
            self._keep(key, tuple(w for w in capable if w.pool == pool) or capable)
        found: tuple[Worker, ...] = self._answers[key]
        return found

    def borrowable(self, pool: str, model: str) -> tuple[Worker, ...]:
        """Return the denoisers of other pools that the pool may use."""
        key = ("borrowable", pool, model)
        if key not in self._answers:
            own = set(self.own(pool, model)) if self.borrow(pool) != "none" else None
            capable = self.capable(Stage.DENOISE, model) if own is not None else ()
            self._keep(key, tuple(w for w in capable if own is not None and w not in own))
        found: tuple[Worker, ...] = self._answers[key]
        return found

    def borrow(self, pool: str) -> str:
        """Return how a pool borrows."""
        return next((each.borrow for each in self.pools if each.name == pool), "none")

    def shared(self, stage: Stage, pool: str, model: str) -> tuple[Worker, ...]:
        """Return the workers that run the stage for a pool and model as if they were its own.

        For a denoise its own, and those of other pools if it borrows preemptibly; for other stages every capable one.
        """
        if stage is not Stage.DENOISE:
            return self.capable(stage, model)
        own = self.own(pool, model)
        return own + self.borrowable(pool, model) if self.borrow(pool) == "preemptible" else own

    def missing(self, stages: frozenset[Stage], model: str) -> tuple[Stage, ...]:
        """Return those of the stages that no worker may run of the model, in their order."""
        return tuple(stage for stage in Stage if stage in stages and not self.capable(stage, model))

    def left_s(self, stage: Stage, model: str) -> float:
        """Return when a worker last left, or stopped taking work, that ran this stage of the model; -inf if never."""
        return self._left.get((stage, model), (-inf, 1.0))[0]

    def speed(self, stage: Stage, pool: str, model: str) -> float:
        """Return the estimated seconds a second that the workers of a pool and model do at a stage.

        Where there are none, what the one did that left last, or 1.
        """
        key = ("speed", stage, pool, model)
        if key not in self._answers:
            speed = sum(1.0 / worker.slowdown for worker in self.shared(stage, pool, model))
            self._keep(key, speed or self._left.get((stage, model), (-inf, 1.0))[1])
        found: float = self._answers[key]
        return found

    def overlaps(self, pool: str, model: str, other_pool: str, other_model: str) -> tuple[float, ...]:
        """Return by stage the part (0 to 1) of the other's work that falls on workers of the first, if spread evenly.

        All of it where neither has any: they wait for the same ones.
        """
        key = ("overlaps", pool, model, other_pool, other_model)
        if key not in self._answers:
            mine = [set(self.shared(stage, pool, model)) for stage in Stage]
            theirs = [self.shared(stage, other_pool, other_model) for stage in Stage]
            self._keep(key, tuple(map(_overlap, mine, theirs)))
        found: tuple[float, ...] = self._answers[key]
        return found

    def is_borrower(self, job: Job, worker: Worker) -> bool:
        """Whether the worker is another pool's, which may take it back from the job."""
        return (
            worker.pool != job.pool
            and self.borrow(job.pool) == "idle"
            and worker not in self.own(job.pool, job.request.model)
        )

    def _rearrange(self) -> None:
        denoisers = self.of_stage(Stage.DENOISE)
        reserve(self.pools, denoisers)
        self.live = sum(worker.info.ready for worker in denoisers)
        for worker in self.by_id.values():
            worker.settle()
        self._forget()

    def _forget(self) -> None:
        self._answers.clear()
        self._changed.update(Stage)

    def _keep(self, key: tuple[Any, ...], answer: Any) -> None:
        if len(self._answers) >= 10_000:  # anyone may ask about models that nobody has
            self._answers.clear()
        self._answers[key] = answer

    def _note_leave(self, worker: Worker, models: Iterable[str]) -> None:
        for model in models:
            key = (worker.info.stage, model)
            self._left.pop(key, None)
            self._left[key] = (self.now, 1.0 / worker.slowdown)
        while len(self._left) > _MAX_LEFT:
            del self._left[next(iter(self._left))]


def _overlap(mine: set[Worker], theirs: Sequence[Worker]) -> float:
    return sum(worker in mine for worker in theirs) / len(theirs) if theirs else float(not mine)


def _whole_s(job: Job, task: Task) -> float:
    """Return the estimate of all that a running task was asked for."""
    seconds, count = job.request.seconds, job.request.output_count
    match task.stage:
        case Stage.ENCODE:
            return seconds.encode_s
        case Stage.DENOISE:
            return seconds.denoise_s * len(job.calls[task].targets) / count
        case Stage.DECODE:
            return seconds.decode_s / count


def reserve(pools: Sequence[PoolConfig], denoisers: Iterable[Worker]) -> None:
    """Give each denoiser that is ready to a pool: by labels, by count, the rest by shares.

    Deterministic; a worker keeps its pool as long as the numbers allow, so that a newcomer moves few others.
    """
    free = []
    for worker in sorted(denoisers, key=lambda worker: worker.worker_id):
        labelled = [pool for pool in pools if pool.labels and pool.labels.items() <= dict(worker.info.labels).items()]
        if labelled:
            worker.pool = labelled[0].name
        elif worker.info.ready:
            free.append(worker)
    left = quotas(pools, len(free))
    unplaced = []
    for worker in free:
        if left.get(worker.pool, 0) > 0:
            left[worker.pool] -= 1
        else:
            unplaced.append(worker)
    for worker in unplaced:
        worker.pool = next((name for name, count in left.items() if count > 0), "")
        if worker.pool:
            left[worker.pool] -= 1


def quotas(pools: Sequence[PoolConfig], worker_count: int) -> dict[str, int]:
    """Return how many of `worker_count` workers without labels each pool gets: counts first, shares by remainder."""
    counts: dict[str, int] = {}
    left = worker_count
    for pool in pools:
        if pool.count is not None and not pool.labels:
            counts[pool.name] = min(pool.count, left)
            left -= counts[pool.name]
    shares = {pool.name: pool.share for pool in pools if pool.count is None and not pool.labels}
    total = sum(shares.values())
    if total in (0.0, inf):
        return counts
    exact = {name: left * share / total for name, share in shares.items()}
    counts |= {name: floor(amount) for name, amount in exact.items()}
    rest = left - sum(counts[name] for name in exact)
    for name in sorted(exact, key=lambda name: counts[name] - exact[name])[:rest]:
        counts[name] += 1
    return counts
