"""Jobs that fill a store between them, each with a part of what it needs there: the last gives back to the first."""

from dataclasses import dataclass
from math import inf

from services.router.core.book import Book
from services.router.core.config import SchedulerConfig
from services.router.core.job import Stage, Task
from services.router.core.reach import Reach
from services.router.core.record import JobRecord
from services.router.core.task import Key, TaskRecord, TaskState

# How often a stage is refused room before others give it up. A denoiser has waited for a while before it says so.
# Conditioning is bounded before a job is encoded, so nobody waits for more of it with some in hand.
_PATIENCE = {Stage.DECODE: 4, Stage.DENOISE: 1}


@dataclass(slots=True)
class _Wait:
    """A task that was refused room so often. From `patience` times on others may have to give it up.

    If it is not being tried again by `until_s`, nobody waits for it longer.
    """

    job: JobRecord
    record: TaskRecord
    patience: float
    refusals: int = 0
    until_s: float = 0.0

    @property
    def has_waited(self) -> bool:
        return self.refusals >= self.patience

    def is_over(self, now: float) -> bool:
        """Whether it is not tried any more, as far as can be told. A try takes as long as it takes."""
        return self.until_s <= now and self.record.state is not TaskState.RUNNING

    def is_ahead_of(self, other: "_Wait", now: float) -> bool:
        """Whether others give to this task first."""
        if self.record.task.stage is not other.record.task.stage or not self.has_waited or self.is_over(now):
            return False
        return self.place < other.place

    @property
    def place(self) -> tuple[Key, int]:
        return (self.job.key, self.record.task.output_index)


class Gridlock:
    """Remembers whose tasks were refused room, and says who gives back what for whom.

    What a job has in a store stays until it is over. Several that have a part of their outputs there, or of their
    latents, can fill it between them, and none would ever get the rest. So once the first of them by rank has waited a
    while, none behind it may begin to take room until it has had its own. Of those behind it that rest the last gives
    back what it has, and so on, until there is room. What is left then is of jobs that are over, and expires.

    Once nobody behind it has anything to give they may begin again: others may have use for a little room. Should they
    have to give again, that is after twice as many tries, for what they make meanwhile is made in vain.
    """

    def __init__(self, book: Book, reach: Reach, due: set[Stage]) -> None:
        self._book = book
        self._reach = reach
        self._due = due
        self._waits: dict[Task, _Wait] = {}
        self._firsts: dict[Stage, _Wait] = {}

    def refuse(self, config: SchedulerConfig, job: JobRecord, record: TaskRecord, now: float) -> int:
        """The task was refused room; returns how often by now."""
        wait = self._waits.setdefault(record.task, _Wait(job, record, _PATIENCE.get(record.task.stage, inf)))
        wait.refusals += 1
        wait.until_s = now + config.max_backoff_s + 2.0 * record.seconds
        return wait.refusals

    def leave(self, record: TaskRecord) -> None:
        """The task has had room, or waits for it no more."""
        wait = self._waits.pop(record.task, None)
        if wait is not None and self._firsts.get(record.task.stage) is wait:
            self._release(record.task.stage)

    def giver(self, config: SchedulerConfig, task: Task, now: float) -> JobRecord | None:
        """Who is to give back what the stage of a task has made of it, now that the task was refused; None if nobody.

        The task is the first of those that wait, or nobody gives for it.
        """
        stage, first = task.stage, self._waits[task]
        if not first.has_waited or any(each.is_ahead_of(first, now) for each in self._waits.values()):
            return None
        behind = [job for job in self._book.jobs.values() if job.key > first.job.key and _has(job, stage)]
        if not behind:
            first.patience = 2.0 * first.refusals
            self._release(stage)
            return None
        self._firsts[stage] = first
        gone_s = now - config.absence_grace_s
        return max([job for job in behind if self._rests(job, stage, gone_s)], key=lambda job: job.key, default=None)

    def bars(self, stage: Stage, key: Key) -> bool:
        """Whether a task of the stage, at this place, may not start now, since the first waits for room."""
        first = self._firsts.get(stage)
        return first is not None and key[:2] > first.job.key[:2]

    def expire(self, now: float) -> None:
        """Nobody waits any longer for who could not be tried again."""
        for stage in [stage for stage, first in self._firsts.items() if first.is_over(now)]:
            self._release(stage)

    def next_due_s(self) -> float | None:
        """When the next of these waits is over; None if nobody waits for anybody."""
        waits = [first for first in self._firsts.values() if first.record.state is not TaskState.RUNNING]
        return min([first.until_s for first in waits], default=None)

    def _rests(self, job: JobRecord, stage: Stage, gone_s: float) -> bool:
        """Whether what the stage has made of the job is neither at work, nor about to be done with.

        Latents at which a decode works that was refused room before are not: it works in vain. Nor are those that
        nobody decodes: there is no worker that could, and has been none since `gone_s`.
        """
        decoding = [decode for decode in job.decodes if decode.state is TaskState.RUNNING]
        if stage is Stage.DECODE:
            return not decoding
        if any(decode.task not in self._waits for decode in decoding):
            return False
        if job.denoise.state is TaskState.DONE:
            model = job.request.model
            comes = self._reach.capable(Stage.DECODE, model) or self._reach.left_s(Stage.DECODE, model) >= gone_s
            return not comes or any(decode.task in self._waits for decode in job.decodes)
        return job.denoise.state is not TaskState.RUNNING

    def _release(self, stage: Stage) -> None:
        if self._firsts.pop(stage, None) is not None:
            self._due.add(stage)


def _has(job: JobRecord, stage: Stage) -> bool:
    """Whether something takes room that the stage has made of the job, or that is kept for it."""
    if not (job.attempt or job.refines):
        return False  # as most of a long queue: it was never denoised
    if stage is Stage.DECODE:
        return any(decode.state is TaskState.DONE for decode in job.decodes)
    return bool(job.latents) or job.refines or job.denoise.saved > (0, 0)
