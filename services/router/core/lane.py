"""The queues of one lane: jobs of one pool and one model, long or not. A worker that suits one job suits all."""

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import NamedTuple

from services.router.core.job import Stage
from services.router.core.ledger import Ledger
from services.router.core.record import JobRecord, Key
from services.router.core.task import TaskRecord, TaskState


class LaneKey(NamedTuple):
    """What jobs of a lane have in common."""

    pool: str
    model: str
    is_long: bool


class Lane:
    """`queued`: jobs that wait for a denoiser. `startable`: tasks in READY, by stage. Both in rank order.

    `denoising` counts its running denoises; `ledger` holds the unrun seconds of all its jobs.
    """

    def __init__(self, key: LaneKey) -> None:
        self.key = key
        self.ledger = Ledger()
        self.queued: list[Key] = []
        self.startable: dict[Stage, list[Key]] = {stage: [] for stage in Stage}
        self.denoising = 0
        self.job_count = 0

    def position(self, key: Key) -> int:
        """How many queued jobs of the lane rank ahead."""
        return bisect_left(self.queued, key)

    def enter(self, job: JobRecord, record: TaskRecord) -> None:
        """Count the task in, by the state it is in now."""
        self._change(job, record, insort, 1)

    def leave(self, job: JobRecord, record: TaskRecord) -> None:
        """Count the task out, before its state changes."""
        self._change(job, record, _take, -1)

    def _change(self, job: JobRecord, record: TaskRecord, queue: Callable[[list[Key], Key], None], sign: int) -> None:
        stage, state = record.task.stage, record.state
        if state is TaskState.READY:
            queue(self.startable[stage], (job.rank, job.job_id, record.task.output_index))
        if stage is Stage.DENOISE:
            if job.queued:
                queue(self.queued, job.key)
            if state is TaskState.RUNNING:
                self.denoising += sign


def _take(queue: list[Key], key: Key) -> None:
    place = bisect_left(queue, key)
    assert queue[place] == key, f"{key} is not queued"
    del queue[place]
