"""The queues of one lane: jobs of one pool and one model, long or not. A worker that suits one job suits all."""

from typing import NamedTuple

from services.router.core.job import Stage
from services.router.core.ledger import Ledger
from services.router.core.queue import RankQueue
from services.router.core.record import JobRecord
from services.router.core.task import Key, TaskRecord, TaskState


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
        self.queued = RankQueue()
        self.startable = {stage: RankQueue() for stage in Stage}
        self.denoising = 0
        self.job_count = 0

    def enter(self, job: JobRecord, record: TaskRecord) -> None:
        """Count the task in, by the state it is in now."""
        stage, state = record.task.stage, record.state
        if state is TaskState.READY:
            self.startable[stage].add(_place(job, record))
        if stage is Stage.DENOISE:
            if state is TaskState.RUNNING:
                self.denoising += 1
            elif state is not TaskState.DONE:
                self.queued.add(job.key)

    def leave(self, job: JobRecord, record: TaskRecord) -> None:
        """Count the task out, before its state changes."""
        stage, state = record.task.stage, record.state
        if state is TaskState.READY:
            self.startable[stage].remove(_place(job, record))
        if stage is Stage.DENOISE:
            if state is TaskState.RUNNING:
                self.denoising -= 1
            elif state is not TaskState.DONE:
                self.queued.remove(job.key)


def _place(job: JobRecord, record: TaskRecord) -> Key:
    index = record.task.output_index
    return (job.key[0], job.key[1], index) if index else job.key
