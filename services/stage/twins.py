"""Two workers with one id: both are heard under it, and the later one ends."""

import structlog
from google.protobuf.message import DecodeError
from google.protobuf.timestamp_pb2 import Timestamp

from triptych.heartbeats import REMEDY, incarnation
from triptych.v1.worker_pb2 import WORKER_STATE_DRAINING, WORKER_STATE_LOADING, WORKER_STATE_READY, WorkerHeartbeat

log = structlog.get_logger()

_MAX_NAMED = 16
# Who works goes before who ends, and that one before who has not begun: clocks of two hosts may differ.
_ORDER = {WORKER_STATE_READY: 0, WORKER_STATE_DRAINING: 1, WORKER_STATE_LOADING: 2}


class WorkerIdTaken(Exception):
    """Another worker has this one's id, and was there before."""


class Twins:
    """What one worker hears under its own id.

    `newest`: when the other worker was started that was heard last. `refused`: why this one has to end.
    """

    def __init__(self) -> None:
        self.newest: Timestamp | None = None
        self.refused: WorkerIdTaken | None = None
        self._named: set[object] = set()

    def hear(self, own: WorkerHeartbeat, data: bytes) -> bool:
        """Take a heartbeat in, given this worker's own; returns whether another worker is to be answered at once.

        It ends this worker only once the other names it: a heartbeat alone may be a dead one's, long on its way.
        """
        beat = _parse(data)
        if beat is None or incarnation(beat) == incarnation(own) or self.refused is not None:
            return False
        is_news, self.newest = beat.start_time != self.newest, beat.start_time
        if not _goes(own, beat):
            self._tell(own, beat)
            return is_news
        if beat.twin_start_time == own.start_time:
            self.refused = WorkerIdTaken(
                f"worker_id {own.worker_id!r} is taken: a worker at {beat.address} was there before this one at"
                f" {own.address}. {REMEDY}"
            )
            log.error("worker_id_taken", address=own.address, first_address=beat.address, remedy=REMEDY)
        return False

    def _tell(self, own: WorkerHeartbeat, beat: WorkerHeartbeat) -> None:
        """Log each once."""
        if incarnation(beat) not in self._named:
            if len(self._named) >= _MAX_NAMED:
                self._named.clear()
            self._named.add(incarnation(beat))
            log.warning("worker_id_shared", address=own.address, later_address=beat.address, remedy=REMEDY)


def _goes(own: WorkerHeartbeat, beat: WorkerHeartbeat) -> bool:
    """Whether this worker has to go, and not the other: both come to the same answer."""
    return own.state != WORKER_STATE_DRAINING and _place(own) > _place(beat)


def _place(beat: WorkerHeartbeat) -> tuple[int, int, str]:
    return _ORDER.get(beat.state, len(_ORDER)), beat.start_time.ToNanoseconds(), beat.address


def _parse(data: bytes) -> WorkerHeartbeat | None:
    try:
        return WorkerHeartbeat.FromString(data)
    except DecodeError:
        return None
