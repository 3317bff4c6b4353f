"""What the scheduler keeps of a worker."""

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from services.router.core.job import Task, WorkerInfo
from services.router.core.pace import Pace
from services.router.core.task import NOWHERE, Key, TaskRecord

if TYPE_CHECKING:
    from services.router.core.cohort import Cohort

Place = tuple[Any, str]
"""What a shelf is ordered by, then the worker's id."""


@dataclass(slots=True, eq=False)
class WorkerRecord:
    """A worker and what it runs. `pool` is the pool that it is reserved for, "" for encoders and decoders.

    `cohort`, `shelf` and `place` say where it is to be found; it has no cohort while it takes no work. `idle_since_s`
    is when it last had nothing to run, or joined. `company`: keys by which it is to be found in `Fleet.company`.
    """

    info: WorkerInfo
    pool: str = ""
    running: dict[Task, TaskRecord] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)
    idle_since_s: float = 0.0
    cohort: "Cohort | None" = None
    shelf: list[Place] | None = None
    place: Place = (0, "")
    lending_place: Place | None = None
    company: frozenset[str] = frozenset()

    @property
    def worker_id(self) -> str:
        return self.info.worker_id

    @property
    def load_s(self) -> float:
        """Estimated seconds until all that it runs is done, at its pace."""
        return self.pace.ratio * sum([record.unrun_s for record in self.running.values()])

    @property
    def slot_free_s(self) -> float:
        """Estimated seconds until the first of what it runs is done, at its pace."""
        return self.pace.ratio * min([record.unrun_s for record in self.running.values()], default=0.0)

    @property
    def front(self) -> Key:
        """The place of what has the device; behind every other if it is idle."""
        return min([record.order for record in self.running.values()], default=NOWHERE)

    @property
    def lends(self) -> bool:
        """Whether a borrower has one of its slots."""
        return any(record.lent for record in self.running.values())

    @property
    def guests(self) -> list[TaskRecord]:
        """What it runs for other pools, by rank."""
        return sorted([record for record in self.running.values() if record.lent], key=lambda record: record.order)

    @property
    def own_front(self) -> Key:
        """The place of the first of its own jobs; behind every other if it has none."""
        return min([record.order for record in self.running.values() if not record.lent], default=NOWHERE)

    @property
    def patience_s(self) -> float:
        """For how many seconds all of its own jobs would bear with a guest ahead of them."""
        return min([record.patience_s for record in self.running.values() if not record.lent], default=inf)

    def hold_up(self, key: Key, seconds: float) -> None:
        """Note that its own jobs behind the place wait so long for a guest."""
        for record in self.running.values():
            if not record.lent and key < record.order:
                record.held_up_s += seconds

    @property
    def joinable(self) -> frozenset[str]:
        """Keys of jobs that it would compute together with what it runs, a slot being left for one that overtakes."""
        if not self.info.merge_keys or len(self.running) + 1 >= self.info.slots or not self.info.ready or self.full:
            return frozenset()
        return self.info.merge_keys & {record.merge_key for record in self.running.values() if not record.lent}

    @property
    def idle(self) -> bool:
        return not self.running

    @property
    def full(self) -> bool:
        """Whether nothing can join what it runs. A suspect runs alone."""
        return 0 < self.info.slots <= len(self.running) or any(record.suspect for record in self.running.values())
