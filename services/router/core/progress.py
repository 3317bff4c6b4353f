"""What becomes of a job when something becomes of one of its tasks."""

from collections.abc import Set

from services.router.core.actions import Action, FinishJob, GiveBack, RequeueJob, StopTask
from services.router.core.book import Book
from services.router.core.config import SchedulerConfig
from services.router.core.events import TaskFailed
from services.router.core.fleet import Fleet
from services.router.core.gridlock import Gridlock
from services.router.core.job import Stage, Task
from services.router.core.record import JobRecord
from services.router.core.task import Death, TaskRecord, TaskState

# What the loss of a stage's result is called.
_GONE = {Stage.ENCODE: "CONDITIONING_GONE", Stage.DENOISE: "LATENTS_GONE"}


class Progress:
    """Moves jobs on and back. Each method takes a task that runs, and returns what is to be done about it."""

    def __init__(self, config: SchedulerConfig, book: Book, fleet: Fleet, gridlock: Gridlock) -> None:
        self._config = config
        self._book = book
        self._fleet = fleet
        self._gridlock = gridlock

    def restore(self, job: JobRecord, finished: frozenset[Stage], decoded: frozenset[int]) -> None:
        """Put the tasks of a job that is not in the book yet into the states that its durable results allow."""
        for index, decode in enumerate(job.decodes):
            if index in decoded:
                decode.state = TaskState.DONE
        if Stage.ENCODE not in job.request.stages:
            job.encode.state = TaskState.DONE
        job.denoise.share = job.missing_share
        if job.all_covered:
            job.denoise.state = job.encode.state = TaskState.DONE
        elif Stage.ENCODE in finished or job.encode.state is TaskState.DONE:
            job.encode.state, job.denoise.state = TaskState.DONE, TaskState.READY
        else:
            job.encode.state = TaskState.READY
        for index, decode in enumerate(job.decodes):
            if index in job.latents and decode.state is TaskState.PENDING:
                decode.state = job.waiting(decode)

    def finish(self, job: JobRecord, record: TaskRecord) -> list[Action]:
        """The task's result is durable."""
        self._fleet.take(record)
        self._gridlock.leave(record)
        if record.task.stage is Stage.DENOISE:
            job.latents |= job.targets
            if not job.decodes and job.all_covered:
                return self.end(job, "succeeded")
            return self._leave_denoise(job, "LATENTS_GONE")
        self._book.move(job, record, TaskState.DONE)
        if record.task.stage is Stage.ENCODE:
            if job.denoise.state is TaskState.PENDING:
                self._book.move(job, job.denoise, TaskState.READY)
            self._ready_decodes(job)
        return self._finish_if_complete(job)

    def latents_ready(self, job: JobRecord, output_index: int) -> None:
        """One output of the running denoise is durable."""
        if output_index in job.targets:
            job.latents |= {output_index}
            self._gridlock.leave(job.denoise)
            self._ready_decodes(job)

    def save(self, record: TaskRecord, place: tuple[int, int]) -> None:
        """The denoise got so far. Tries that were lost before have not kept it from that: they count no more.

        Each such place is further than all before, so a job that takes its workers down is still tried so often only.
        """
        if place > record.saved:
            record.saved, record.failures = place, 0
            if record.suspect:
                self._fleet.acquit(record)

    def fail(self, job: JobRecord, record: TaskRecord, event: TaskFailed, now: float) -> list[Action]:
        """The task ended without a result: it is tried again, at once or after a while, unless in vain.

        Where a store was full it is tried until there is room: what was accepted is not lost to that. If need be
        another job makes some.
        """
        self._fleet.take(record)
        if record.task.stage is Stage.DENOISE and job.all_covered:
            return self._leave_denoise(job, event.reason)
        if not event.retryable:
            return self.end(job, "failed", event.reason, event.blame)
        if event.awaits_room:
            refusals = self._gridlock.refuse(self._config, job, record, now)
            giver = self._gridlock.giver(self._config, record.task, now)
            again = self._again(job, record, event.reason, now, self._config.backoff(1 if giver else refusals))
            return again + self._give_back(giver, record.task) if giver else again
        self._gridlock.leave(record)
        record.failures += event.counts
        record.setbacks += not event.counts
        if record.failures >= self._config.max_attempts or record.setbacks > self._config.max_setbacks:
            tries = record.failures + record.setbacks
            why = f"{record.task.stage.value} ended {tries} times without a result, last: {event.reason} {event.blame}"
            return self.end(job, "failed", "TOO_MANY_ATTEMPTS", why.rstrip())
        # The first setback is no reason to wait: a worker drained, another takes over.
        delay_s = self._config.backoff(record.failures if event.counts else record.setbacks - 1)
        return self._again(job, record, event.reason, now, delay_s)

    def lose_worker(self, job: JobRecord, record: TaskRecord, death: Death, now: float) -> list[Action]:
        """The task's worker died under it. From now on the task runs alone, until a checkpoint of it is kept.

        One that has used up its attempts waits a while before the job ends: the worker may come back.
        """
        record.deaths += (death,)
        record.failures += death.failures
        if record.task.stage is Stage.DENOISE and job.all_covered:
            return self._leave_denoise(job, "WORKER_LOST")
        grace_s = self._config.return_grace_s if self._is_worn_out(record) else 0.0
        if self._is_worn_out(record) and not (death.number and grace_s):
            return self._end_worn_out(job, record)
        return self._again(job, record, "WORKER_LOST", now, grace_s)

    def release(self, now: float) -> list[Action]:
        """Have every task go on whose pause is over, and end the jobs whose attempts are used up by then."""
        actions: list[Action] = []
        for job, record in self._book.release(now):
            if self._is_worn_out(record) and job.job_id in self._book.jobs:
                actions += self._end_worn_out(job, record)
        return actions

    def refute(self, numbers: Set[int]) -> None:
        """What was taken for these deaths was none."""
        for job in self._book.jobs.values():
            for record in job.tasks:
                if any(death.number in numbers for death in record.deaths):
                    self._clear(job, record, numbers)

    def _clear(self, job: JobRecord, record: TaskRecord, numbers: Set[int]) -> None:
        worn_out = self._is_worn_out(record)
        record.failures -= sum(death.failures for death in record.deaths if death.number in numbers)
        self._fleet.acquit(record, lambda death: death.number in numbers)
        if record.state is TaskState.HELD and worn_out:
            self._book.move(job, record, TaskState.READY)

    def _is_worn_out(self, record: TaskRecord) -> bool:
        return record.failures >= self._config.max_attempts

    def _end_worn_out(self, job: JobRecord, record: TaskRecord) -> list[Action]:
        worker_id = record.deaths[-1].worker_id
        why = f"{record.task.stage.value} failed {record.failures} times; the last time worker {worker_id} was lost"
        return self.end(job, "failed", "TOO_MANY_ATTEMPTS", why)

    def lose_input(self, job: JobRecord, record: TaskRecord, made_by: Stage) -> list[Action]:
        """What a stage had made for the task is gone: that stage makes it again."""
        self._fleet.take(record)
        # Conditioning is missed by one task after the other; it is made again once for all of them.
        rerun = made_by is Stage.DENOISE or job.encoded
        job.reruns += rerun
        if job.reruns > self._config.max_reruns:
            blame = f"the input of {record.task.stage.value} was gone {job.reruns} times"
            return self.end(job, "failed", _GONE[made_by], blame)
        if made_by is Stage.ENCODE:
            return self._encode_again(job, record)
        index = record.task.output_index
        job.latents -= {index}
        job.targets -= {index}
        self._book.move(job, record, TaskState.PENDING)
        if job.denoise.state is not TaskState.DONE:
            return []  # it still has outputs to make; this one is made in the next run
        return self._denoise_again(job, _GONE[made_by])

    def end(self, job: JobRecord, outcome: str, reason: str = "", blame: str = "") -> list[Action]:
        """The job is over; what runs of it is stopped."""
        actions: list[Action] = []
        for record in job.tasks:
            if record.worker_id:
                actions.append(StopTask(record.task, record.worker_id))
                self._fleet.take(record)
            self._gridlock.leave(record)
        self._book.remove(job)
        actions.append(FinishJob(job.job_id, outcome, reason, blame))
        return actions

    def _again(self, job: JobRecord, record: TaskRecord, reason: str, now: float, delay_s: float) -> list[Action]:
        if record.task.stage is Stage.DENOISE:
            record.share = job.missing_share
        state = job.waiting(record)
        if delay_s > 0 and state is TaskState.READY:
            self._book.hold(job, record, now + delay_s)
        else:
            self._book.move(job, record, state)
        return [RequeueJob(job.job_id, job.attempt, reason, record.task.stage)]

    def _give_back(self, job: JobRecord, taker: Task) -> list[Action]:
        """What the taker's stage has made of the job is given up, and made again later."""
        actions: list[Action] = []
        stage, outputs = taker.stage, frozenset[int]()
        if stage is Stage.DECODE:
            outputs = frozenset(i for i, decode in enumerate(job.decodes) if decode.state is TaskState.DONE)
            for index in sorted(outputs):
                decode = job.decodes[index]
                self._book.move(job, decode, job.waiting(decode) if index in job.latents else TaskState.PENDING)
        else:
            job.latents, job.denoise.saved, job.refines = frozenset(), (0, 0), False
            for decode in job.decodes:
                if decode.state is TaskState.RUNNING:
                    actions.append(StopTask(decode.task, decode.worker_id, reason="made room"))
                    self._fleet.take(decode)
                if decode.state not in (TaskState.PENDING, TaskState.DONE):
                    self._book.move(job, decode, TaskState.PENDING)
        denoise = job.denoise
        if denoise.state is not TaskState.RUNNING:
            denoise.share = job.missing_share
            if denoise.state is TaskState.DONE and not job.all_covered:
                self._book.move(job, denoise, job.waiting(denoise))
            self._book.reckon(job)
        return [*actions, GiveBack(job.job_id, job.attempt, stage, taker.job_id, outputs)]

    def _encode_again(self, job: JobRecord, record: TaskRecord) -> list[Action]:
        """The task has missed the conditioning. What runs may have it already; what waits, waits for it."""
        if record is job.denoise:
            if job.all_covered:
                return self._leave_denoise(job, _GONE[Stage.ENCODE])
            record.share = job.missing_share
        self._book.move(job, record, TaskState.PENDING)
        if job.encoded:
            self._book.move(job, job.encode, TaskState.READY)
        for other in (job.denoise, *job.decodes):
            if other.state in (TaskState.READY, TaskState.HELD):
                self._book.move(job, other, TaskState.PENDING)
        # Latents that are there stay: to who watches, the decode alone is put back.
        stage = Stage.ENCODE if record is job.denoise else Stage.DECODE
        return [RequeueJob(job.job_id, job.attempt, _GONE[Stage.ENCODE], stage)]

    def _leave_denoise(self, job: JobRecord, reason: str) -> list[Action]:
        """The denoise has ended: done, unless latents that it does not owe have gone meanwhile."""
        self._book.move(job, job.denoise, TaskState.DONE)
        self._ready_decodes(job)
        if not job.all_covered:
            return self._denoise_again(job, reason)
        return self._finish_if_complete(job)

    def _denoise_again(self, job: JobRecord, reason: str) -> list[Action]:
        job.denoise.share = job.missing_share
        self._book.move(job, job.denoise, job.waiting(job.denoise))
        return [RequeueJob(job.job_id, job.attempt, reason, Stage.DENOISE)]

    def _ready_decodes(self, job: JobRecord) -> None:
        if not job.encoded:
            return
        for index in sorted(job.latents):
            if index < len(job.decodes) and job.decodes[index].state is TaskState.PENDING:
                self._book.move(job, job.decodes[index], TaskState.READY)

    def _finish_if_complete(self, job: JobRecord) -> list[Action]:
        return self.end(job, "succeeded") if job.complete else []
