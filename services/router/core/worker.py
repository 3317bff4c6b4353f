"""What the scheduler keeps of a worker."""

from dataclasses import dataclass, field

from services.router.core.job import Task, WorkerInfo
from services.router.core.task import TaskRecord


@dataclass(slots=True)
class WorkerRecord:
    """A worker and what it runs. `pool` is the pool that it is reserved for, "" for encoders and decoders."""

    info: WorkerInfo
    pool: str = ""
    running: dict[Task, TaskRecord] = field(default_factory=dict)

    @property
    def worker_id(self) -> str:
        return self.info.worker_id

    @property
    def load_s(self) -> float:
        """Estimated seconds until all that it runs is done."""
        return sum(record.unrun_s for record in self.running.values())

    @property
    def idle(self) -> bool:
        return not self.running

    @property
    def full(self) -> bool:
        """Whether all its slots are taken."""
        return 0 < self.info.slots <= len(self.running)

    def can_run(self, model: str) -> bool:
        """Whether it may be given work of this model."""
        return self.info.ready and model in self.info.models

    def has_room(self, record: TaskRecord) -> bool:
        """Whether it has a slot for this task. A suspect runs alone."""
        if len(self.running) >= self.info.slots:
            return False
        return not self.running or not (record.suspect or any(other.suspect for other in self.running.values()))
