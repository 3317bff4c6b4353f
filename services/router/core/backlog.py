"""How much work ranks ahead of a place in the order, and what that means for the wait."""

from dataclasses import dataclass

from services.router.core.book import Book
from services.router.core.fleet import Fleet, Group, Workers
from services.router.core.job import Stage, StageSeconds
from services.router.core.lane import LaneKey
from services.router.core.record import Key
from services.router.core.worker import WorkerRecord

_STAGES = tuple(Stage)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Unrun seconds ahead, per worker that can run the model, by stage: the `A` of admission."""

    encode_s: float
    denoise_s: float
    decode_s: float

    @property
    def worst_s(self) -> float:
        return max(self.encode_s, self.denoise_s, self.decode_s)

    def finish_s(self, seconds: StageSeconds, wait_s: float) -> float:
        """Seconds until a job would be done whose denoise starts in `wait_s`."""
        return max(wait_s + seconds.denoise_s, self.decode_s) + seconds.decode_s


class Backlogs:
    """Reads the backlog ahead of any place from the book and the fleet."""

    def __init__(self, book: Book, fleet: Fleet) -> None:
        self._book = book
        self._fleet = fleet

    def ahead(self, pool: str, model: str, key: Key) -> Backlog:
        """Unrun seconds ahead of `key` per worker that jobs of this pool and model may use.

        Each lane's work counts by the part of it that falls on those workers if it is spread evenly over its own.
        """
        sums = [0.0, 0.0, 0.0]
        groups = [Group(stage, pool, model) for stage in _STAGES]
        for lane in self._book.lanes.values():
            seconds = lane.ledger.ahead(key)
            for index, group in enumerate(groups):
                if seconds[index]:
                    other = Group(group.stage, lane.key.pool, lane.key.model)
                    sums[index] += seconds[index] * self._fleet.overlap(group, other)
        counts = [max(1, len(self._fleet.suited(group))) for group in groups]
        return Backlog(*(total / count for total, count in zip(sums, counts, strict=True)))

    def wait_s(self, pool: str, model: str, key: Key, backlog: Backlog, encode_s: float) -> float:
        """Predicted seconds until the denoise of a job at `key` starts, its encode taking `encode_s`."""
        denoisers = self._fleet.suited(Group(Stage.DENOISE, pool, model))
        at_once = not self._queued_ahead(denoisers, key) and any(worker.idle for worker in denoisers)
        denoiser_s = 0.0 if at_once else max(backlog.denoise_s, _slot_free_s(denoisers))
        return max(backlog.encode_s + encode_s, denoiser_s)

    def position(self, pool: str, key: Key) -> int:
        """How many jobs of the pool that wait for a denoiser rank ahead."""
        return sum(lane.position(key) for lane in self._book.lanes.values() if lane.key.pool == pool)

    def _queued_ahead(self, denoisers: Workers, key: Key) -> bool:
        own = {worker.worker_id for worker in denoisers}
        return any(
            lane.queued
            and lane.queued[0] < key
            and any(worker.worker_id in own for worker in self._fleet.suited(_denoise_group(lane.key)))
            for lane in self._book.lanes.values()
        )


def _slot_free_s(workers: Workers) -> float:
    """Seconds until one of the workers has a slot to give, however its jobs rank: what runs in the last slot stays."""
    return min((_soonest_s(worker) if worker.full else 0.0 for worker in workers), default=0.0)


def _soonest_s(worker: WorkerRecord) -> float:
    return min(record.unrun_s for record in worker.running.values())


def _denoise_group(key: LaneKey) -> Group:
    return Group(Stage.DENOISE, key.pool, key.model)
