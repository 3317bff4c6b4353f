"""One thread that owns the device: every piece of device work runs here, best rank first."""

import asyncio
import heapq
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from services.stage.nesting import Nesting

_Result = TypeVar("_Result")
Rank = tuple[float, str]


class TooMuchWaits(Exception):
    """The device has more work before it than may wait."""


class Stopped(BaseException):
    """Work that nobody wants any more unwinds with this. Not an Exception: diffusers logs every one that passes."""


@dataclass(order=True, slots=True)
class _Work:
    rank: Rank
    order: int
    function: Callable[[], Any] = field(compare=False)
    done: Callable[[Any, BaseException | None], None] = field(compare=False)
    stopped: bool = field(default=False, compare=False)
    started: bool = field(default=False, compare=False)
    # Told, on the device thread, that it is interrupted (True) and that it goes on (False).
    on_pause: Callable[[bool], None] | None = field(default=None, compare=False)
    # Neither runs nested in other work, nor has any nested in itself.
    alone: bool = field(default=False, compare=False)
    # Seconds that better-ranked work took out of the middle of this one.
    paused_s: float = field(default=0.0, compare=False)


class DeviceThread:
    """Runs functions one at a time, lowest rank first, ties by arrival.

    Work that takes long calls `give_way()` where it can be interrupted: everything of a better rank that waits runs
    right there, nested, on the same thread and stack; then the interrupted work goes on. So nothing is recomputed, no
    state is saved, and no two pieces of work ever touch the device at once. At most `max_waiting` wait; `nesting` says
    how much may be paused.
    """

    def __init__(self, name: str, max_waiting: int = 256, nesting: Nesting | None = None) -> None:
        self._name = name
        self._max_waiting = max_waiting
        self._nesting = nesting or Nesting()
        # What was allocated before the outermost of the running work.
        self._base_bytes = 0
        self._wake = threading.Condition()
        self._waiting: list[_Work] = []
        self._running: list[_Work] = []
        self._order = itertools.count()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. Once."""
        self._thread.start()

    def close(self) -> None:
        """Run nothing more: waiting work is stopped, running work ends at its next `give_way`."""
        with self._wake:
            self._closed = True
            dropped, self._waiting = self._waiting, []
            for work in self._running:
                work.stopped = True
            self._wake.notify_all()
        for work in dropped:
            work.done(None, Stopped())

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    async def run(
        self,
        rank: Rank,
        function: Callable[[], _Result],
        *,
        on_pause: Callable[[bool], None] | None = None,
        alone: bool = False,
    ) -> _Result:
        """The function's result, from the device thread.

        `on_pause` is told, there, when the function is interrupted and when it goes on. `alone`: not in the middle of
        other work, whose memory would be taken still, nor others in the middle of it.
        Cancelling the awaiting task drops work that waits and stops work that runs at its next `give_way`. Raises
        `TooMuchWaits`.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            loop.call_soon_threadsafe(_resolve, future, result, error)

        work = self._put(_Work(rank, next(self._order), function, done, on_pause=on_pause, alone=alone))
        try:
            return await future
        except asyncio.CancelledError:
            self._stop(work)
            raise

    def rerank(self, job_id: str, rank: float) -> None:
        """Give a job's work another rank, from the next `give_way` on. From any thread.

        Work that is nested in other work stays there until it is done, however it ranks by then.
        """
        with self._wake:
            for work in [*self._running, *self._waiting]:
                if work.rank[1] == job_id:
                    work.rank = (rank, job_id)
            heapq.heapify(self._waiting)

    def give_way(self, *, in_forward: bool = False) -> None:
        """Called by running work, on the device thread: run all better-ranked work that waits, then return.

        `in_forward`: activations lie on the stack, of which no more than `Nesting.max_bytes` may be paused. Costs next
        to nothing while nothing waits. Raises `Stopped` if this work was stopped meanwhile.
        """
        mine = self._running[-1]
        better = self._take_better(mine, in_forward) if self._waiting else None
        if better is not None:
            self._interrupt(mine, better, in_forward)
        self.check()

    def check(self) -> None:
        """Called by running work: raises `Stopped` if it was stopped meanwhile."""
        if self._running[-1].stopped:
            raise Stopped

    def clock_s(self) -> float:
        """A clock for running work that stands still while the work is interrupted: differences are device time."""
        return time.perf_counter() - self._running[-1].paused_s

    def _interrupt(self, mine: _Work, better: _Work | None, in_forward: bool) -> None:
        """Run the better work, and all that is better still when it is done, in the middle of mine."""
        tell = mine.on_pause or (lambda paused: None)
        began = time.perf_counter()
        tell(True)
        while better is not None:
            self._execute(better)
            better = self._take_better(mine, in_forward)
        tell(False)
        mine.paused_s += time.perf_counter() - began

    def _put(self, work: _Work) -> _Work:
        with self._wake:
            if self._closed:
                raise RuntimeError(f"{self._name} is closed")
            if len(self._waiting) >= self._max_waiting:
                raise TooMuchWaits(f"{self._max_waiting} pieces of work wait already")
            heapq.heappush(self._waiting, work)
            self._wake.notify_all()
        return work

    def _stop(self, work: _Work) -> None:
        with self._wake:
            work.stopped = True
            if not work.started and work in self._waiting:
                self._waiting.remove(work)
                heapq.heapify(self._waiting)

    def _take(self) -> _Work | None:
        with self._wake:
            if not self._waiting:
                return None
            work = heapq.heappop(self._waiting)
            work.started = True
            return work

    def _take_better(self, mine: _Work, in_forward: bool) -> _Work | None:
        """The best of the waiting work that may run in the middle of mine, if any."""
        with self._wake:
            # What wants to be alone waits for the end of mine; what ranks behind it does not wait with it.
            work = min((each for each in self._waiting if _may_nest(each, mine)), default=None)
            if work is None or not self._has_room(in_forward):
                return None
            self._waiting.remove(work)
            heapq.heapify(self._waiting)
            work.started = True
            return work

    def _has_room(self, in_forward: bool) -> bool:
        return self._nesting.has_room(len(self._running), self._base_bytes, in_forward=in_forward)

    def _loop(self) -> None:
        # Grad mode is a thread's own.
        with torch.no_grad():
            while not self._closed:
                work = self._take()
                if work is not None:
                    self._execute(work)
                    continue
                with self._wake:
                    if not self._waiting and not self._closed:
                        self._wake.wait()

    def _execute(self, work: _Work) -> None:
        if not self._running:
            self._base_bytes = self._nesting.allocated()
        self._running.append(work)
        result, error = None, None
        try:
            if work.stopped:
                raise Stopped
            result = work.function()
        except BaseException as raised:  # noqa: BLE001 - the edge of the device thread
            error = raised
        finally:
            self._running.pop()
        work.done(result, error)


def _may_nest(work: _Work, outer: _Work) -> bool:
    return work.rank < outer.rank and not (work.alone or outer.alone)


def _resolve(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, Stopped):
        future.cancel()
    else:
        future.set_exception(error)
