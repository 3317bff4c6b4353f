"""How much work ranks ahead of a place in the order, and what that means for the wait."""

from dataclasses import dataclass
from math import inf

from services.router.core.book import Book
from services.router.core.fleet import Cohorts, Fleet
from services.router.core.job import Stage, StageSeconds
from services.router.core.task import Key

_NOTHING = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Unrun seconds ahead, per worker that can run the model, by stage: the `A` of admission.

    A worker that takes twice the estimates counts as half a worker.
    """

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
        encode_s = denoise_s = decode_s = 0.0
        for lane in self._book.lanes.values():
            parts = self._fleet.overlaps(pool, model, lane.key.pool, lane.key.model)
            if parts != _NOTHING:
                seconds = lane.ledger.ahead(key)
                encode_s += parts[0] * seconds[0]
                denoise_s += parts[1] * seconds[1]
                decode_s += parts[2] * seconds[2]
        encoders, denoisers, decoders = self._fleet.speeds(pool, model)
        return Backlog(encode_s / encoders, denoise_s / denoisers, decode_s / decoders)

    def wait_s(self, pool: str, model: str, key: Key, backlog: Backlog, encode_s: float) -> float:
        """Predicted seconds until the denoise of a job at `key` starts, its encode taking `encode_s`."""
        denoisers = self._fleet.suited(Stage.DENOISE, pool, model)
        denoiser_s = 0.0
        if not _any_idle(denoisers) or self._queued_ahead(pool, model, key):
            denoiser_s = max(backlog.denoise_s, _slot_free_s(denoisers))
        return max(backlog.encode_s + encode_s, denoiser_s)

    def position(self, pool: str, key: Key) -> int:
        """How many jobs of the pool that wait for a denoiser rank ahead."""
        return sum(lane.queued.position(key) for lane in self._book.lanes.values() if lane.key.pool == pool)

    def _queued_ahead(self, pool: str, model: str, key: Key) -> bool:
        """Whether a job that could take one of the same workers waits, and ranks ahead."""
        for lane in self._book.lanes.values():
            if lane.queued and lane.queued.first < key:
                parts = self._fleet.overlaps(pool, model, lane.key.pool, lane.key.model)
                if parts[1] > 0:
                    return True
        return False


def _any_idle(cohorts: Cohorts) -> bool:
    for cohort in cohorts:  # noqa: SIM110 - asked of every job that comes, and any() takes twice as long
        if cohort.idle:
            return True
    return False


def _slot_free_s(cohorts: Cohorts) -> float:
    """Seconds until one of the workers has a slot to give, however its jobs rank: what runs in the last slot stays."""
    first_s = inf
    for cohort in cohorts:
        if cohort.idle or cohort.roomy:
            return 0.0
        if cohort.full:
            first_s = min(first_s, cohort.full[0][0])
    return first_s if first_s < inf else 0.0
