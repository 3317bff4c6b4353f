"""A modelled worker: one device that runs the best-ranked of its calls and switches at the ends of blocks."""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import ceil, inf
from typing import NamedTuple

from services.router.core.job import Task


class Span(NamedTuple):
    """A stretch of time in which a worker ran one task without a switch."""

    worker_id: str
    task: Task
    start_s: float
    end_s: float


@dataclass(slots=True)
class Call:
    """A task on a device. `seconds` is what all of it takes there, `done_s` how much of that was done at `since_s`.

    While it runs, `since_s` is when this stretch of it began; that is in the future while its model loads.
    """

    task: Task
    rank: float
    seconds: float
    done_s: float = 0.0
    since_s: float = inf
    stopped: bool = False

    def done_by(self, now: float) -> float:
        """Seconds of it that are done."""
        return min(self.seconds, self.done_s + max(0.0, now - self.since_s))

    @property
    def end_s(self) -> float:
        """When it ends if nothing comes between; infinity while it is paused."""
        return self.since_s + (self.seconds - self.done_s)


_Waiting = tuple[float, str, int, Call]


@dataclass(slots=True)
class Device:
    """Runs one call at a time. `block_s`: seconds of a block, between which it may switch; 0: only between calls.

    `version` changes whenever `next_s`, the time of the next end or switch, may have. `spans`, if a list is given,
    takes a record of all that ran. A call costs O(log n) for n calls on the device.
    """

    worker_id: str
    block_s: float = 0.0
    spans: list[Span] | None = None
    running: Call | None = None
    busy_s: float = 0.0
    version: int = 0
    next_s: float = inf
    _waiting: list[_Waiting] = field(default_factory=list)

    def give(self, call: Call, now: float, load_s: float = 0.0) -> None:
        """Take a call up: at once, at the end of a block, or when its turn comes. `load_s` passes before it begins."""
        if load_s:  # weights are loaded once: the load counts as work of this call, before its first block
            call.seconds += load_s
        heappush(self._waiting, (call.rank, call.task.job_id, call.task.output_index, call))
        if self.running is None:
            self._run_best(now)
        else:
            self._set_next(now)

    def stop(self, task: Task, now: float) -> Call | None:
        """Give a call up, whether it runs or waits; returns it with what is done of it."""
        call = self.running
        if call is not None and call.task == task:
            self._pause(now)
            self._run_best(now)
            return call
        for place, entry in enumerate(self._waiting):
            if entry[3].task == task:
                del self._waiting[place]
                heapify(self._waiting)
                self._set_next(now)
                return entry[3]
        return None

    def advance(self, now: float) -> Call | None:
        """What `next_s` announced: the call that ended, or None after a switch."""
        call = self.running
        assert call is not None
        ended = call.end_s <= now
        self._pause(now)
        if ended:
            call.done_s = call.seconds
        else:
            heappush(self._waiting, (call.rank, call.task.job_id, call.task.output_index, call))
        self._run_best(now)
        return call if ended else None

    def calls(self) -> list[Call]:
        """Everything that it has."""
        waiting = [entry[3] for entry in self._waiting]
        return [self.running, *waiting] if self.running is not None else waiting

    def _run_best(self, now: float) -> None:
        if self._waiting:
            self.running = heappop(self._waiting)[3]
            self.running.since_s = now
        self._set_next(now)

    def _pause(self, now: float) -> None:
        call = self.running
        assert call is not None
        self.busy_s += now - call.since_s
        if self.spans is not None and now > call.since_s:
            self.spans.append(Span(self.worker_id, call.task, call.since_s, now))
        call.done_s, call.since_s = call.done_by(now), inf
        self.running = None

    def _set_next(self, now: float) -> None:
        self.version += 1
        call = self.running
        if call is None:
            self.next_s = inf
            return
        self.next_s = call.end_s
        if self.block_s and self._waiting and self._waiting[0][:2] < (call.rank, call.task.job_id):
            blocks = ceil((now - call.since_s) / self.block_s)
            self.next_s = min(call.end_s, call.since_s + blocks * self.block_s)
