"""Follows the fleet: a snapshot when it has changed, and the scheduler's decisions as they are made."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable
from time import monotonic

from services.router.going_down import going_down
from triptych.durations import seconds_within
from triptych.errors import Violation, invalid
from triptych.v1.router_service_pb2 import Decision, GetFleetResponse, WatchFleetRequest, WatchFleetResponse

DEFAULT_INTERVAL_S = 1.0
MIN_INTERVAL_S, MAX_INTERVAL_S = 0.1, 3600.0
MAX_WAITING = 256


def check_interval(request: WatchFleetRequest) -> float:
    """Seconds between two snapshots. Raises INVALID_FIELD."""
    if not request.HasField("interval"):
        return DEFAULT_INTERVAL_S
    interval_s = seconds_within(request.interval, MIN_INTERVAL_S, MAX_INTERVAL_S)
    if interval_s is None:
        allowed = f"{MIN_INTERVAL_S:g} s to {MAX_INTERVAL_S:g} s"
        raise invalid(Violation("interval", f"must be {allowed}, its nanos 0 to 999,999,999"))
    return interval_s


class _Watcher:
    """What one watcher has not taken yet, at most `MAX_WAITING` decisions; the oldest are missed."""

    def __init__(self, may_see: Callable[[Decision], bool]) -> None:
        self._may_see = may_see
        self.decisions: deque[Decision] = deque()
        self.missed_count = 0
        self.told = asyncio.Event()

    def tell(self, decision: Decision) -> None:
        if not self._may_see(decision):
            return
        if len(self.decisions) == MAX_WAITING:
            self.decisions.popleft()
            self.missed_count += 1
        self.decisions.append(decision)
        self.told.set()


class FleetWatch:
    """Tells each watcher what it may see; a slow one holds nobody up."""

    def __init__(self) -> None:
        self._watchers: set[_Watcher] = set()
        self._closing = False

    @property
    def watched(self) -> bool:
        """Whether anybody would hear of a decision."""
        return bool(self._watchers)

    def tell(self, decision: Decision) -> None:
        """A decision was made."""
        for watcher in self._watchers:
            watcher.tell(decision)

    def close(self) -> None:
        """End every stream with DRAINING, so that its client goes on elsewhere."""
        self._closing = True
        for watcher in self._watchers:
            watcher.told.set()

    async def follow(
        self, interval_s: float, take: Callable[[], GetFleetResponse], may_see: Callable[[Decision], bool]
    ) -> AsyncGenerator[WatchFleetResponse, None]:
        """A snapshot at once and then whenever it has changed, at most one each interval; decisions between them.

        `take` takes a picture of the fleet. Raises DRAINING when the router goes down.
        """
        watcher = _Watcher(may_see)
        self._watchers.add(watcher)
        last: bytes | None = None
        due_s = monotonic()
        try:
            while True:
                if self._closing:
                    raise going_down()
                watcher.told.clear()
                while watcher.decisions:
                    decision = watcher.decisions.popleft()
                    yield WatchFleetResponse(decision=decision, missed_count=watcher.missed_count)
                if monotonic() >= due_s:
                    snapshot = take()
                    if (state := _state(snapshot)) != last:
                        last = state
                        yield WatchFleetResponse(snapshot=snapshot, missed_count=watcher.missed_count)
                    due_s = monotonic() + interval_s
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(watcher.told.wait(), max(0.0, due_s - monotonic()))
        finally:
            self._watchers.discard(watcher)


def _state(snapshot: GetFleetResponse) -> bytes:
    """What counts as a change: not that heartbeats have aged."""
    bare = GetFleetResponse()
    bare.CopyFrom(snapshot)
    for worker in bare.workers:
        worker.ClearField("heartbeat_age")
    return bare.SerializeToString(deterministic=True)
