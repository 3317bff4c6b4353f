"""Placement: the best-ranked task that can start, on the worker that would finish it soonest.

An encode or a decode goes to the worker with least to do, one that has the model loaded first. A denoise goes, in this
order, to an idle denoiser of its pool; to an idle one that its pool may borrow; to a busy one on which everything ranks
behind, which it preempts at the next block (the one whose best rank is worst, for that one can wait longest); to one
that would share forward calls between it and a job of its kind; to one of its pool that a borrower has, which is
evicted. A task whose worker died runs alone from then on: it waits for an idle worker, and nothing that ranks behind it
starts meanwhile where it could.

`evict` is the one way to take a task off a worker: its call is stopped, and the task may start again elsewhere.
"""

from bisect import insort
from collections.abc import Callable, Sequence

from services.router.core.actions import Action, RequeueJob, StartTask, StopTask
from services.router.core.config import SchedulerConfig
from services.router.core.job import Stage, Task
from services.router.core.jobs import Job, JobTable, Queue
from services.router.core.ranking import Key
from services.router.core.store_deadlock import StoreDeadlock
from services.router.core.workers import LAST, Worker, Workers

Place = tuple[Worker, str]
"""A worker, and why it was chosen."""


class Placement:
    """Starts tasks: notes them in the facts of their jobs, and says so in actions."""

    def __init__(self, config: SchedulerConfig, table: JobTable, workers: Workers, deadlock: StoreDeadlock) -> None:
        self._config = config
        self._pools = {pool.name: pool for pool in config.pools_in_force}
        self._table = table
        self._workers = workers
        self._deadlock = deadlock
        # Workers that are left to run empty, for a suspect.
        self._reserved: set[Worker] = set()
        self._reclaims = any(pool.borrow == "idle" for pool in config.pools_in_force)
        # Fewer jobs are encoded ahead while there is little room for conditioning; None: as configured.
        self.encode_ahead_jobs: int | None = None

    def run(self) -> list[Action]:
        """Start whatever can be started now, and move paused jobs to denoisers that are left idle."""
        actions: list[Action] = []
        changed = self._table.changed
        if Stage.DECODE in changed:
            self._fill(Stage.DECODE, self._least_loaded, actions)
        if Stage.DENOISE in changed:
            while self._start_denoises(actions):  # one that was evicted may find another place, or leaves room
                pass
        if Stage.ENCODE in changed:
            self._fill(Stage.ENCODE, self._least_loaded, actions)
        changed.clear()
        return actions

    def _start_denoises(self, actions: list[Action]) -> bool:
        """Start what can be started, then move paused jobs; return whether any was evicted."""
        before = len(actions)
        self._fill(Stage.DENOISE, self._denoiser, actions)
        if self._config.rules.preempts and not _stops(actions[before:]):
            self._migrate(actions)
        return _stops(actions[before:])

    def evict(self, job: Job, task: Task, reason: str) -> StopTask:
        """Take a task off its worker: what it had not made durable is made again."""
        stopped = StopTask(task, job.calls[task].worker_id, reason=reason)
        self._workers.take(job, task)
        self._table.refresh(job)
        return stopped

    def _fill(
        self, stage: Stage, pick: Callable[[Job, Task, list[Action]], Place | None], actions: list[Action]
    ) -> None:
        """Start the first task of each queue that finds a worker, best rank first; then the next of that queue."""
        self._reserved.clear()
        queues = self._table.queues.values()
        heads = sorted([(queue.ready[stage][0], queue.key) for queue in queues if queue.ready[stage]])
        for place, (key, queue_key) in enumerate(heads, 1):
            queue = self._table.queues[queue_key]
            job = self._table.jobs[key[1]]
            task = Task(job.job_id, stage, key[2])
            if not self._may_start(queue, stage, key):
                continue
            found = pick(job, task, actions)
            if found is not None:
                actions.append(self._begin(job, task, *found))
                if queue.ready[stage]:
                    insort(heads, (queue.ready[stage][0], queue_key), lo=place)
            elif job.is_suspect(task):
                self._reserved.update(self._eligible(job, task))

    def _may_start(self, queue: Queue, stage: Stage, key: Key) -> bool:
        if self._deadlock.bars(stage, key):
            return False
        if stage is Stage.ENCODE:
            most = self._config.encode_ahead_jobs
            most = most if self.encode_ahead_jobs is None else min(most, self.encode_ahead_jobs)
            return self._table.may_encode(queue, key, most)
        most_running = self._pools[queue.key.pool].max_running
        if stage is Stage.DECODE or most_running is None:
            return True
        denoisers = self._workers.of_stage(Stage.DENOISE)
        running = [job for worker in denoisers for job in worker.running.values() if job.pool == queue.key.pool]
        return len(running) < most_running

    def _begin(self, job: Job, task: Task, worker: Worker, why: str, moved_from: str = "") -> StartTask:
        targets = finished = frozenset[int]()
        attempt = job.attempt
        if task.stage is Stage.DENOISE:
            job.attempt = attempt = job.attempt + 1
            targets = job.missing
            finished = job.request.outputs - targets
        elif task.stage is Stage.ENCODE:
            attempt += 1
        self._workers.give(worker, job, task, targets)
        self._table.refresh(job)
        return StartTask(task, worker.worker_id, job.rank, attempt, finished, why, moved_from)

    def _eligible(self, job: Job, task: Task) -> Sequence[Worker]:
        """Return the workers that may be given the task as their own."""
        if task.stage is Stage.DENOISE:
            return self._workers.own(job.pool, job.request.model)
        return self._workers.capable(task.stage, job.request.model)

    def _least_loaded(self, job: Job, task: Task, actions: list[Action]) -> Place | None:
        model, alone = job.request.model, job.is_suspect(task)
        found = [
            (model not in worker.info.resident, *self._load(worker), worker.worker_id)
            for worker in self._workers.capable(task.stage, model)
            if worker.open and worker not in self._reserved and (worker.idle or not alone)
        ]
        return (self._workers.by_id[min(found)[-1]], "least to do") if found else None

    def _load(self, worker: Worker) -> tuple[bool, float]:
        return (False, worker.slowdown_step) if worker.idle else (True, worker.load_s)

    def _denoiser(self, job: Job, task: Task, actions: list[Action]) -> Place | None:
        pool, model = job.pool, job.request.model
        own = self._open(self._workers.own(pool, model))
        lent = self._open(self._workers.borrowable(pool, model))
        if found := self._idle(own, model):
            return found, "idle"
        if found := self._idle(lent, model):
            return found, f"idle, lent by pool {found.pool or 'none'}"
        if job.is_suspect(task) or not self._config.rules.preempts:
            return None
        if self._pools[pool].borrow == "preemptible":
            own += lent
        found_place = self._preempted(own, job) or self._batched(own, job)
        return found_place or (self._reclaimed(job, actions) if self._reclaims else None)

    def _open(self, workers: Sequence[Worker]) -> list[Worker]:
        return [worker for worker in workers if worker.open and worker not in self._reserved]

    def _idle(self, workers: list[Worker], model: str) -> Worker | None:
        idle = [w for w in workers if not w.running]
        return min(idle, key=lambda w: (model not in w.info.resident, w.slowdown_step, w.worker_id), default=None)

    def _preempted(self, workers: list[Worker], job: Job) -> Place | None:
        """Return the busy denoiser whose best-ranked job has the worst rank, if that is behind the job's."""
        key, model = job.key, job.request.model
        behind = [w for w in workers if key < w.front < LAST]
        found = max(behind, key=lambda w: (model in w.info.resident, w.front), default=None)
        return (found, f"ahead of {found.front[1]}") if found else None

    def _batched(self, workers: list[Worker], job: Job) -> Place | None:
        """Return the denoiser with fewest jobs that shares forward calls between this one and another.

        What the job adds to their time is less than it would take alone. A slot stays free for one that preempts.
        """
        kind = job.request.merge_key
        if not kind:
            return None
        found = [
            (len(worker.running), worker.worker_id)
            for worker in workers
            if kind in worker.info.merge_keys
            and len(worker.running) + 1 < worker.info.slots
            and any(other.request.merge_key == kind for other in worker.running.values())
        ]
        return (self._workers.by_id[min(found)[1]], "computed together with its like") if found else None

    def _reclaimed(self, job: Job, actions: list[Action]) -> Place | None:
        """Evict borrowers from a denoiser of the job's pool that runs nothing of its own that ranks ahead.

        Those that rank ahead of the job; if there are none, the last one, which has the slot that the job needs. One
        all of whose latents are there is about to end: it has nothing to go on with elsewhere.
        """
        for worker in self._workers.own(job.pool, job.request.model):
            others = [each for each in worker.running.values() if each.pool != job.pool]
            theirs = sorted([each for each in others if self._workers.is_borrower(each, worker)], key=lambda j: j.key)
            if not theirs or worker in self._reserved:
                continue
            if any(each.key < job.key for each in worker.running.values() if each not in theirs):
                continue
            evicted = [each for each in theirs if each.missing and each.key < job.key]
            if not evicted and not worker.open:
                evicted = [each for each in theirs if each.missing][-1:]
            if evicted:
                for each in evicted:
                    actions.append(self.evict(each, each.denoise, "reclaimed"))
                    actions.append(RequeueJob(each.job_id, each.attempt, "RECLAIMED", Stage.DENOISE))
                return worker, f"reclaimed from {', '.join(each.job_id for each in evicted)}"
        return None

    def _migrate(self, actions: list[Action]) -> None:
        """Move jobs that would stay paused for longer than a move costs to denoisers that are idle, best rank first."""
        denoisers = self._workers.of_stage(Stage.DENOISE)
        if not any(worker.open and worker.idle for worker in denoisers):
            return
        for job, worker in self._paused(denoisers):
            pool, model = job.pool, job.request.model
            own = self._open(self._workers.own(pool, model))
            found = self._idle(own, model) or self._idle(self._open(self._workers.borrowable(pool, model)), model)
            if found is not None:
                task, why = job.denoise, f"idle, and it was paused on {worker.worker_id}"
                actions.append(self.evict(job, task, "moved"))
                actions.append(self._begin(job, task, found, why, moved_from=worker.worker_id))

    def _paused(self, denoisers: list[Worker]) -> list[tuple[Job, Worker]]:
        """Return jobs that wait long for the device of their worker, by rank."""
        found: list[tuple[Job, Worker]] = []
        for worker in denoisers:
            ahead_s = 0.0
            for job in sorted(worker.running.values(), key=lambda job: job.key) if len(worker.running) > 1 else ():
                if ahead_s > self._config.move_cost_s and job.encoded and job.missing:
                    found.append((job, worker))
                ahead_s += worker.slowdown * job.remaining(job.denoise)
        return sorted(found, key=lambda each: each[0].key)


def _stops(actions: list[Action]) -> bool:
    return any(isinstance(action, StopTask) for action in actions)
