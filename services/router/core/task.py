"""The states of a task, the one table of its legal transitions, and what the scheduler keeps of each task."""

from dataclasses import dataclass
from enum import Enum
from math import inf

from services.router.core.job import Task, Tries

Key = tuple[float, str, int]
"""Place in a queue, lower first: rank, job id, output index."""

PATIENCE = 0.5
"""The part of its own time for which, all in all, a job is held up by those to which its pool's workers are lent."""

NOWHERE: Key = (inf, "", 0)


class TaskState(Enum):
    """Where a task stands."""

    # Enum's own hashes the name in Python each time.
    __hash__ = object.__hash__

    PENDING = "pending"  # its input is not there yet
    READY = "ready"  # may be started
    HELD = "held"  # failed, and waits out its back-off
    RUNNING = "running"
    DONE = "done"  # its result is durable


# A new or restored job's tasks begin in whatever state its durable results allow.
TRANSITIONS: dict[TaskState, frozenset[TaskState]] = {
    TaskState.PENDING: frozenset({TaskState.READY}),
    # PENDING again: another task of the job has found that the input is gone.
    TaskState.READY: frozenset({TaskState.RUNNING, TaskState.PENDING}),
    TaskState.HELD: frozenset({TaskState.READY, TaskState.PENDING}),
    # READY again: its worker died or drained; PENDING again: its input was gone.
    TaskState.RUNNING: frozenset({TaskState.DONE, TaskState.READY, TaskState.HELD, TaskState.PENDING}),
    # READY again: its result left the exchange before it was used; PENDING again: and what it was made of too.
    TaskState.DONE: frozenset({TaskState.READY, TaskState.PENDING}),
}


@dataclass(frozen=True, slots=True)
class Death:
    """Of a worker that ran a task: its number, as events have it, and the failures that the task was charged with."""

    number: int = 0
    worker_id: str = ""
    failures: int = 0


@dataclass(slots=True)
class TaskRecord:
    """A task of an accepted job.

    `seconds` is the estimate of all of it, `share` the part (0 to 1) that is to be run still or again, `fraction` how
    much of that is done. `failures` are tries held against the job, `setbacks` tries that are not. `deaths`, of workers
    that died under it, make it a suspect: it runs alone from then on, so that it takes no other job down with it.
    `saved` is the furthest point (output, step) that a try could go on from: what gets further has not failed in vain,
    and is no suspect any more.

    `order` is the place of a running denoise among those of its worker, the first of which has the device; `lent`: the
    worker is another pool's; `held_up_s`: seconds for which such guests were let ahead of it on its own pool's worker.
    `merge_key` is the job's, of its denoise.
    """

    task: Task
    seconds: float
    state: TaskState = TaskState.PENDING
    worker_id: str = ""
    share: float = 1.0
    fraction: float = 0.0
    failures: int = 0
    setbacks: int = 0
    deaths: tuple[Death, ...] = ()
    saved: tuple[int, int] = (0, 0)
    order: Key = NOWHERE
    lent: bool = False
    held_up_s: float = 0.0
    merge_key: str = ""

    @property
    def suspect(self) -> bool:
        """Whether a worker died under it."""
        return bool(self.deaths)

    @property
    def unrun_s(self) -> float:
        """Estimated seconds still to run, ≥ 0."""
        return 0.0 if self.state is TaskState.DONE else self.seconds * self.share * (1.0 - self.fraction)

    @property
    def tries(self) -> Tries | None:
        """What was tried in vain; None if nothing was."""
        if not (self.failures or self.setbacks or self.suspect):
            return None
        return Tries(self.task, self.failures, self.setbacks, self.suspect)

    @property
    def patience_s(self) -> float:
        """For how many seconds more jobs of other pools may hold it up on a worker of its own pool."""
        return PATIENCE * self.seconds * self.share - self.held_up_s
