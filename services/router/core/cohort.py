"""Workers that are alike, shelved by how free they are, so that nobody has to look at each of them."""

from bisect import bisect_left, insort
from typing import NamedTuple

from services.router.core.job import Stage
from services.router.core.worker import Place, WorkerRecord


class Kind(NamedTuple):
    """What workers of a cohort have in common."""

    stage: Stage
    pool: str
    models: frozenset[str]
    resident: frozenset[str]
    slots: int


class Cohort:
    """Three shelves, each in order: every worker is on one of them.

    `idle`: by pace and id. `roomy`, running something and with a slot left: denoisers by the place of what has the
    device, so that the last one is the one to overtake; the others by seconds still to run. `full`: by seconds until
    a slot is free; one that runs a suspect, which is alone, counts as full. `lending` are those on which a borrower has
    a slot, by the place of the first of their own pool's jobs.
    """

    __slots__ = ("full", "idle", "kind", "lending", "roomy", "size", "speed")

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.idle: list[Place] = []
        self.roomy: list[Place] = []
        self.full: list[Place] = []
        self.lending: list[Place] = []
        self.size = 0
        self.speed = 0.0

    def shelve(self, worker: WorkerRecord) -> None:
        """Put the worker where it belongs now."""
        shelf, place = self._where(worker)
        if self.kind.slots > 1 and self.kind.stage is Stage.DENOISE:  # a single slot is not lent
            self._lend(worker, True)
        if shelf is worker.shelf:
            if place == worker.place:
                return
            _take(shelf, worker.place)
        elif worker.shelf is not None:
            _take(worker.shelf, worker.place)
        insort(shelf, place)
        worker.shelf, worker.place = shelf, place

    def unshelve(self, worker: WorkerRecord) -> None:
        """The worker belongs here no more."""
        if worker.shelf is not None:
            _take(worker.shelf, worker.place)
            worker.shelf = None
        self._lend(worker, False)

    def _lend(self, worker: WorkerRecord, here: bool) -> None:
        lends = here and worker.lends
        place = (worker.own_front, worker.info.worker_id) if lends else None
        if place != worker.lending_place:
            if worker.lending_place is not None:
                _take(self.lending, worker.lending_place)
            if place is not None:
                insort(self.lending, place)
            worker.lending_place = place

    def _where(self, worker: WorkerRecord) -> tuple[list[Place], Place]:
        worker_id = worker.info.worker_id
        if not worker.running:
            return self.idle, (worker.pace.step, worker_id)
        if worker.full:
            return self.full, (worker.slot_free_s, worker_id)
        if self.kind.stage is Stage.DENOISE:
            return self.roomy, (worker.front, worker_id)
        return self.roomy, (worker.load_s, worker_id)


def _take(shelf: list[Place], place: Place) -> None:
    index = bisect_left(shelf, place)
    assert shelf[index] == place, f"{place} is not where it was put"
    del shelf[index]
