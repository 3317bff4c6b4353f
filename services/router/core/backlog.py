"""How much work ranks ahead of a place in the order."""

from dataclasses import dataclass

from services.router.core.book import Book
from services.router.core.job import StageSeconds
from services.router.core.reach import Reach
from services.router.core.task import Key

_NOTHING = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Unrun seconds ahead, per worker that can run the model, by stage.

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
    """Reads the backlog ahead of any place from the book, and from who may run what."""

    def __init__(self, book: Book, reach: Reach) -> None:
        self._book = book
        self._reach = reach

    def ahead(self, pool: str, model: str, key: Key) -> Backlog:
        """Unrun seconds ahead of `key` per worker that jobs of this pool and model may use.

        Each lane's work counts by the part of it that falls on those workers if it is spread evenly over its own.
        """
        encode_s = denoise_s = decode_s = 0.0
        for lane in self._book.lanes.values():
            parts = self._reach.overlaps(pool, model, lane.key.pool, lane.key.model)
            if parts != _NOTHING:
                seconds = lane.ledger.ahead(key)
                encode_s += parts[0] * seconds[0]
                denoise_s += parts[1] * seconds[1]
                decode_s += parts[2] * seconds[2]
        encoders, denoisers, decoders = self._reach.speeds(pool, model)
        return Backlog(encode_s / encoders, denoise_s / denoisers, decode_s / decoders)

    def position(self, pool: str, key: Key) -> int:
        """How many jobs of the pool that wait for a denoiser rank ahead."""
        return sum(lane.queued.position(key) for lane in self._book.lanes.values() if lane.key.pool == pool)
