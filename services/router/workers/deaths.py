"""Workers that were taken for dead. One that is heard again as the process that it was had not died."""

from dataclasses import dataclass

from triptych.heartbeats import Incarnation, incarnation
from triptych.v1.worker_pb2 import WorkerHeartbeat

# What a worker said before its death may be heard for so long after it.
_ON_THE_WAY_S = 2.0
_MAX_PROCESSES = 4096


@dataclass(slots=True)
class _Death:
    noted_s: float
    numbers: frozenset[int]


class Deaths:
    """Numbers each, from 1 on. The oldest are forgotten once there are too many: those stay deaths."""

    def __init__(self) -> None:
        self._count = 0
        self._by_process: dict[tuple[str, Incarnation], _Death] = {}

    def note(self, beat: WorkerHeartbeat, now_s: float) -> int:
        """The worker that sent this is taken for dead; returns the number of its death."""
        self._count += 1
        key = (beat.worker_id, incarnation(beat))
        earlier = self._by_process.pop(key, None)
        numbers = earlier.numbers if earlier is not None else frozenset[int]()
        self._by_process[key] = _Death(now_s, numbers | {self._count})
        if len(self._by_process) > _MAX_PROCESSES:
            del self._by_process[next(iter(self._by_process))]
        return self._count

    def refuted(self, beat: WorkerHeartbeat, now_s: float) -> frozenset[int]:
        """The deaths that were none, as this heartbeat shows: each is returned once."""
        key = (beat.worker_id, incarnation(beat))
        death = self._by_process.get(key)
        if death is None or now_s - death.noted_s < _ON_THE_WAY_S:
            return frozenset()
        del self._by_process[key]
        return death.numbers
