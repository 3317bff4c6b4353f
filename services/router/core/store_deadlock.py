"""Jobs that fill a store between them, each with a part of what it needs there: the last gives back to the first.

What a job has in a store stays until it is over. Several that have a part of their outputs there, or of their latents,
can fill it between them, and none would ever get the rest. So once the first of them by rank has been refused room for
a while, none behind it may begin to take room until it has had its own. Of those behind it that are not at work the
last gives back what it has, and so on, until there is room. What is left then belongs to jobs that are over, and
expires.

Once nobody behind it has anything to give they may begin again: others may have use for a little room. Should they have
to give again, that is after twice as many refusals, for what they make meanwhile is made in vain.
"""

from dataclasses import dataclass
from math import inf

from services.router.core.config import SchedulerConfig
from services.router.core.job import Stage, Task
from services.router.core.jobs import Job, JobTable
from services.router.core.ranking import Key
from services.router.core.workers import Workers

# How often a stage is refused room before others give it up. A denoiser has waited for a while before it says so.
# Conditioning is bounded before a job is encoded, so nobody waits for more of it with some in hand.
_PATIENCE = {Stage.DECODE: 4, Stage.DENOISE: 1}


@dataclass(slots=True)
class _Wait:
    """A task that was refused room. From `patience` refusals on, others may have to give it up.

    If it is not tried again by `until_s`, nobody waits for it longer.
    """

    job: Job
    task: Task
    patience: float
    refusals: int = 0
    until_s: float = 0.0

    @property
    def place(self) -> tuple[Key, int]:
        return (self.job.key, self.task.output_index)

    @property
    def runs(self) -> bool:
        return self.task in self.job.calls

    def is_over(self, now: float) -> bool:
        """Whether it is not tried any longer, as far as can be told. A try takes as long as it takes."""
        return self.until_s <= now and not self.runs

    def is_ahead_of(self, other: "_Wait", now: float) -> bool:
        """Whether others give to this task first."""
        if self.task.stage is not other.task.stage or self.refusals < self.patience or self.is_over(now):
            return False
        return self.place < other.place


class StoreDeadlock:
    """Remembers the tasks that were refused room, and says which job gives back what for which."""

    def __init__(self, table: JobTable, workers: Workers) -> None:
        self._table = table
        self._workers = workers
        self._waits: dict[Task, _Wait] = {}
        self._firsts: dict[Stage, _Wait] = {}

    def refuse(self, config: SchedulerConfig, job: Job, task: Task, now: float) -> int:
        """Note that the task was refused room; returns how often by now."""
        wait = self._waits.setdefault(task, _Wait(job, task, _PATIENCE.get(task.stage, inf)))
        wait.refusals += 1
        seconds = job.request.seconds
        part = 1.0 / job.request.output_count if task.stage is Stage.DECODE else 1.0
        wait.until_s = now + config.max_backoff_s + 2.0 * part * seconds.each[list(Stage).index(task.stage)]
        return wait.refusals

    def leave(self, task: Task) -> None:
        """Note that the task has had room, or waits for it no longer."""
        wait = self._waits.pop(task, None)
        if wait is not None and self._firsts.get(task.stage) is wait:
            self._release(task.stage)

    def giver(self, config: SchedulerConfig, task: Task, now: float) -> Job | None:
        """Return the job that gives back what the stage of a task has made of it, now that the task was refused.

        None if nobody gives. The task is the first of those that wait, or nobody gives for it.
        """
        stage, first = task.stage, self._waits[task]
        if first.refusals < first.patience or any(each.is_ahead_of(first, now) for each in self._waits.values()):
            return None
        behind = [job for job in self._table.jobs.values() if job.key > first.job.key and _has(job, stage)]
        if not behind:
            first.patience = 2.0 * first.refusals
            self._release(stage)
            return None
        self._firsts[stage] = first
        gone_s = now - config.absence_grace_s
        return max([job for job in behind if self._rests(job, stage, gone_s)], key=lambda job: job.key, default=None)

    def bars(self, stage: Stage, key: Key) -> bool:
        """Return whether a task of the stage, at this place, may not start now, since the first waits for room."""
        first = self._firsts.get(stage)
        return first is not None and key[:2] > first.job.key[:2]

    def expire(self, now: float) -> None:
        """Stop holding other tasks back for one that was not tried again in time."""
        for stage in [stage for stage, first in self._firsts.items() if first.is_over(now)]:
            self._release(stage)

    def next_due_s(self) -> float | None:
        """Return when the next of these waits is over; None if nobody waits for anybody."""
        return min([first.until_s for first in self._firsts.values() if not first.runs], default=None)

    def _rests(self, job: Job, stage: Stage, gone_s: float) -> bool:
        """Whether what the stage has made of the job is neither at work, nor about to be done with.

        Latents at which a decode works that was refused room before are not: it works in vain. Nor are those that
        nobody decodes: there is no worker that could, and has been none since `gone_s`.
        """
        decoding = [task for task in job.calls if task.stage is Stage.DECODE]
        if stage is Stage.DECODE:
            return not decoding
        if any(task not in self._waits for task in decoding):
            return False
        if not job.missing and job.denoise not in job.calls:
            model = job.request.model
            served = self._workers.capable(Stage.DECODE, model) or self._workers.left_s(Stage.DECODE, model) >= gone_s
            waits = any(Task(job.job_id, Stage.DECODE, index) in self._waits for index in job.request.outputs)
            return not served or waits
        return job.denoise not in job.calls

    def _release(self, stage: Stage) -> None:
        if self._firsts.pop(stage, None) is not None:
            self._table.changed.add(stage)


def _has(job: Job, stage: Stage) -> bool:
    """Whether something takes room that the stage has made of the job, or that is kept for it."""
    if not (job.attempt or job.refines):
        return False  # as most of a long queue: it was never denoised
    if stage is Stage.DECODE:
        return bool(job.outputs)
    return bool(job.latents) or job.refines or job.saved > (0, 0)
