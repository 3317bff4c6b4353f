"""Who runs what next: the best-ranked task that can start, on the worker that would finish it soonest."""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from services.router.core.actions import Action, RequeueJob, StartTask, StopTask
from services.router.core.book import Book
from services.router.core.cohort import Cohort
from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.fleet import Fleet
from services.router.core.gridlock import Gridlock
from services.router.core.job import Stage
from services.router.core.lane import Lane
from services.router.core.policy import POLICIES
from services.router.core.record import JobRecord
from services.router.core.task import Key, TaskRecord, TaskState
from services.router.core.worker import Place, WorkerRecord

_LOOK_AT = 8
"""Busy denoisers of a cohort at which a borrower looks."""

_Pick = Callable[[JobRecord, TaskRecord], tuple[WorkerRecord, str] | None]
_Head = tuple[Key, Lane]


class Dispatch:
    """Starts tasks: books them, gives them to workers, and says so in actions.

    Looks only at the stages that are due: a task became ready there, or a worker got free.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        pools: Iterable[PoolConfig],
        book: Book,
        fleet: Fleet,
        gridlock: Gridlock,
        due: set[Stage],
    ) -> None:
        self._config = config
        self._policy = POLICIES[config.policy]
        self._pools = {pool.name: pool for pool in pools}
        self._lending = any(pool.borrow != "none" for pool in self._pools.values())
        self._book = book
        self._fleet = fleet
        self._gridlock = gridlock
        self._reach = fleet.reach
        self._due = due
        self._ahead_jobs = config.encode_ahead_jobs
        # Cohorts that run empty, so that a suspect gets a worker to itself.
        self._reserved: set[Cohort] = set()

    def bound_encodes(self, ahead_jobs: int | None) -> None:
        """Encode no more than so many jobs of a lane ahead of their turn; None: as configured."""
        most = self._config.encode_ahead_jobs
        self._ahead_jobs = most if ahead_jobs is None else min(most, ahead_jobs)
        self._due.add(Stage.ENCODE)

    def run(self) -> list[Action]:
        """Start whatever can be started now."""
        started: list[Action] = []
        due, ready = self._due, self._book.ready
        if Stage.DECODE in due and ready[Stage.DECODE]:
            self._fill(Stage.DECODE, (self._least_loaded,), started)
        while Stage.DENOISE in due and ready[Stage.DENOISE]:  # who is sent away may find another place: look again
            due.discard(Stage.DENOISE)
            self._fill(Stage.DENOISE, self._ways(started), started)
        if Stage.ENCODE in due and ready[Stage.ENCODE]:
            self._fill(Stage.ENCODE, (self._least_loaded,), started)
        self._due.clear()
        return started

    def _ways(self, started: list[Action]) -> Iterator[_Pick]:
        """How a denoiser may be found, the best way first. One that would find none as things are now is left out."""
        if self._fleet.any_idle:
            yield self._own_idle
            if self._lending:
                yield self._borrowed
        if self._policy.overtakes:
            yield self._overtaken
            if self._fleet.company:
                yield self._joined
            if self._lending and self._fleet.any_lent:
                yield partial(self._reclaimed, started)

    def begin(self, job: JobRecord, record: TaskRecord, worker: WorkerRecord, why: str) -> StartTask:
        """Give a ready task to a worker."""
        stage = record.task.stage
        finished: frozenset[int] = frozenset()
        lent = False
        attempt = job.attempt
        if stage is Stage.DENOISE:
            finished, lent = self._aim(job, worker)
            attempt = job.attempt
        elif stage is Stage.ENCODE:
            attempt += 1
        self._book.move(job, record, TaskState.RUNNING)
        if lent:
            worker.hold_up(job.key, record.unrun_s)
        self._fleet.give(worker, record, job.key, lent)
        return StartTask(record.task, worker.info.worker_id, job.key[0], attempt, finished, why, lent=lent)

    def move(self, job: JobRecord, record: TaskRecord, worker: WorkerRecord) -> StartTask:
        """Give a running denoise, whose call is being stopped, to another worker. It goes on from its checkpoint."""
        moved_from = record.worker_id
        self._fleet.take(record)
        share = record.share
        finished, lent = self._aim(job, worker)
        if record.share != share:
            record.fraction = 0.0  # it was of more outputs than are left
        self._book.reckon(job)
        self._fleet.give(worker, record, job.key, lent)
        why = f"idle, and it was paused on {moved_from}"
        return StartTask(record.task, worker.worker_id, job.rank, job.attempt, finished, why, moved_from, lent)

    def _aim(self, job: JobRecord, worker: WorkerRecord) -> tuple[frozenset[int], bool]:
        """A denoise is about to start: the outputs that it need not make, and whether the worker is lent to it."""
        finished = job.covered
        job.attempt += 1
        job.targets = job.request.outputs - finished
        job.denoise.share = len(job.targets) / job.request.output_count
        return finished, self._lent_to(job, worker)

    def _lent_to(self, job: JobRecord, worker: WorkerRecord) -> bool:
        """Whether it is another pool's worker, which that may ask back. A job whose pool has none is at home on any."""
        preemptible = self._policy.overtakes and self._pools[job.pool].borrow == "preemptible"
        if worker.pool == job.pool or not preemptible:
            return False
        return worker.cohort not in self._reach.suited(Stage.DENOISE, job.pool, job.request.model)

    def idle_hosts(self, job: JobRecord) -> Sequence[Cohort]:
        """Denoisers that may take the job while they are idle: its own, or if none of them is, those it may borrow."""
        own = self._reach.suited(Stage.DENOISE, job.pool, job.request.model)
        return own if any(cohort.idle for cohort in own) else self._lent(job)

    def _lent(self, job: JobRecord) -> Sequence[Cohort]:
        return self._reach.borrowable(job.pool, job.request.model)

    def _fill(self, stage: Stage, ways: Iterable[_Pick], started: list[Action]) -> None:
        """Start tasks of a stage, in one way after the other, until no lane's first task finds a worker."""
        heads: list[_Head] | None = None
        for pick in ways:
            before = len(started)
            heads = self._heads(stage) if heads is None else heads
            self._start_heads(heads, stage, pick, started)
            if len(started) > before:
                heads = None

    def _heads(self, stage: Stage) -> list[_Head]:
        """The first task of the stage of each lane that has any, in the order of ranks."""
        queues = [(lane.startable[stage], lane) for lane in self._book.lanes.values()]
        return sorted([(queue.first, lane) for queue, lane in queues if queue])

    def _start_heads(self, heads: list[_Head], stage: Stage, pick: _Pick, started: list[Action]) -> None:
        """Start what finds a worker; the next of its lane comes in its stead."""
        jobs, reserved = self._book.jobs, self._reserved
        reserved.clear()
        for place, (key, lane) in enumerate(heads, 1):
            if not self._may_start(lane, stage):
                continue
            job = jobs[key[1]]
            record = _task(job, stage, key[2])
            found = pick(job, record)
            if found is not None:
                started.append(self.begin(job, record, *found))
                if lane.startable[stage]:
                    insort(heads, (lane.startable[stage].first, lane), lo=place)
            elif record.suspect:  # it needs a worker to itself: let one run empty
                reserved.update(self._reach.suited(stage, job.pool, job.request.model))

    def _may_start(self, lane: Lane, stage: Stage) -> bool:
        """Whether the lane's first task of the stage is allowed to start."""
        if self._gridlock.bars(stage, lane.startable[stage].first):
            return False
        if stage is Stage.ENCODE:
            first = lane.startable[stage].first
            # One that is encoded again may be denoised already: it waits for no denoiser.
            if lane.queued.is_among_first(self._ahead_jobs, first):
                return True
            return self._ahead_jobs > 0 and not self._book.jobs[first[1]].queued
        return stage is Stage.DECODE or not (lane.key.is_long and self._long_are_enough(lane))

    def _long_are_enough(self, lane: Lane) -> bool:
        most = self._pools[lane.key.pool].max_long_running
        if most is None:
            return False
        lanes = [other for other in self._book.lanes.values() if other.key.is_long and other.key.pool == lane.key.pool]
        return sum(other.denoising for other in lanes) >= most

    def _least_loaded(self, job: JobRecord, record: TaskRecord) -> tuple[WorkerRecord, str] | None:
        """Of workers that have the model hot, else of any: an idle one, else that with the least to do."""
        model = job.request.model
        places = []
        for cohort in self._free(self._reach.capable(record.task.stage, model)):
            cold = model not in cohort.kind.resident
            if cohort.idle:
                places.append((cold, False, *cohort.idle[0]))
            if cohort.roomy and not record.suspect:
                places.append((cold, True, *cohort.roomy[0]))
        return (self._fleet.workers[min(places)[3]], "least to do") if places else None

    def _own_idle(self, job: JobRecord, record: TaskRecord) -> tuple[WorkerRecord, str] | None:
        return self._idle(job, self._free(self._reach.suited(Stage.DENOISE, job.pool, job.request.model)))

    def _borrowed(self, job: JobRecord, record: TaskRecord) -> tuple[WorkerRecord, str] | None:
        """Idle denoisers of other pools. They have no work of their own: that was started before."""
        found = self._idle(job, self._free(self._lent(job)))
        return found and (found[0], f"idle, lent by pool {found[0].pool or 'none'}")

    def _overtaken(self, job: JobRecord, record: TaskRecord) -> tuple[WorkerRecord, str] | None:
        """Of busy denoisers all of whose jobs rank behind, that which has the most distant one: it can wait longest.

        On another pool's, if it may borrow busy ones, only where that pool's jobs have patience with it.
        """
        if record.suspect:
            return None
        best: tuple[bool, Key, str] | None = None
        own = self._reach.suited(Stage.DENOISE, job.pool, job.request.model)
        for cohort in self._free(own):
            if cohort.roomy and job.key < cohort.roomy[-1][0]:
                choice = (job.request.model in cohort.kind.resident, *cohort.roomy[-1])
                best = choice if best is None else max(best, choice)
        if self._pools[job.pool].borrow == "preemptible":
            for cohort in self._free(self._lent(job)):
                place = None if cohort in own else self._patient(cohort, job, record)
                if place is not None:
                    choice = (job.request.model in cohort.kind.resident, *place)
                    best = choice if best is None else max(best, choice)
        return best and (self._fleet.workers[best[2]], f"ahead of {best[1][1]}")

    def _patient(self, cohort: Cohort, job: JobRecord, record: TaskRecord) -> Place | None:
        """Of a cohort's last busy denoisers the first whose jobs rank behind and bear with the guest."""
        for front, worker_id in islice(reversed(cohort.roomy), _LOOK_AT):
            if not job.key < front:
                return None
            if self._fleet.workers[worker_id].patience_s >= record.unrun_s:
                return (front, worker_id)
        return None

    def _joined(self, job: JobRecord, record: TaskRecord) -> tuple[WorkerRecord, str] | None:
        """Of its own denoisers that would compute its forwards together with others', that with the fewest of them.

        What it adds to their time is less than it would take alone. A slot stays free for whoever overtakes.
        """
        ids = self._fleet.company.get(job.request.merge_key)
        if not ids or record.suspect:
            return None
        suited = self._free(self._reach.suited(Stage.DENOISE, job.pool, job.request.model))
        places = [
            (len(worker.running), worker.worker_id)
            for worker in map(self._fleet.workers.__getitem__, ids)
            if worker.cohort in suited
        ]
        return (self._fleet.workers[min(places)[1]], "computed together with its like") if places else None

    def _reclaimed(self, started: list[Action], job: JobRecord, record: TaskRecord) -> tuple[WorkerRecord, str] | None:
        """A denoiser of its own where none of its pool ranks ahead, but a guest does or has the last slot.

        Guests that rank ahead may stay if that is short work for the job to wait for; the others are sent away. One all
        of whose latents are there is about to end: it has nothing to go on with elsewhere.
        """
        if record.suspect:
            return None
        cohorts = self._free(self._reach.suited(Stage.DENOISE, job.pool, job.request.model))
        place = max((cohort.lending[-1] for cohort in cohorts if cohort.lending), default=None)
        if place is None or not job.key < place[0]:
            return None
        worker = self._fleet.workers[place[1]]
        guests = [guest for guest in worker.guests if not self._book.jobs[guest.task.job_id].all_covered]
        if worker.full and not guests:
            return None
        ahead = [guest for guest in guests if guest.order < job.key]
        ahead_s = sum(guest.unrun_s for guest in ahead)
        sent = []
        while ahead and ahead_s > record.patience_s:
            sent.append(ahead.pop())
            ahead_s -= sent[-1].unrun_s
        if not sent and worker.full:
            sent.append(guests[-1])
        for guest in sent:
            self._send_away(guest, started)
        record.held_up_s += ahead_s
        names = ", ".join(guest.task.job_id for guest in sent)
        if names:
            return worker, f"asked back from {names}"
        return worker, f"after {(ahead or worker.guests)[0].task.job_id}, which is a guest"

    def _send_away(self, guest: TaskRecord, started: list[Action]) -> None:
        """Stop a borrower. It waits for another place, to go on from its checkpoint."""
        job = self._book.jobs[guest.task.job_id]
        started.append(StopTask(guest.task, guest.worker_id, reason="asked back"))
        self._fleet.take(guest)
        guest.share = job.missing_share
        self._book.move(job, guest, job.waiting(guest))
        started.append(RequeueJob(job.job_id, job.attempt, "ASKED_BACK", Stage.DENOISE))

    def _free(self, cohorts: Sequence[Cohort]) -> Sequence[Cohort]:
        return [cohort for cohort in cohorts if cohort not in self._reserved] if self._reserved else cohorts

    def _idle(self, job: JobRecord, cohorts: Iterable[Cohort]) -> tuple[WorkerRecord, str] | None:
        model = job.request.model
        best: tuple[bool, Place] | None = None
        for cohort in cohorts:
            if cohort.idle:
                choice = (model not in cohort.kind.resident, cohort.idle[0])
                best = choice if best is None else min(best, choice)
        return (self._fleet.workers[best[1][1]], "idle") if best else None


def _task(job: JobRecord, stage: Stage, output_index: int) -> TaskRecord:
    if stage is Stage.DECODE:
        return job.decodes[output_index]
    return job.encode if stage is Stage.ENCODE else job.denoise
