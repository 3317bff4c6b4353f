"""One thread that owns the device: every piece of device work runs here, best rank first."""

import asyncio
import itertools
import math
import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar

import torch

from services.stage.advancing import Advancing
from services.stage.fibre import Fibre, Merging, SharedCall, SharedFibre, Stopped
from services.stage.hub import Hub
from services.stage.pause_bounds import PauseBounds
from services.stage.turns import Group, Phase, Rank, Turns, Unit

__all__ = ["DeviceThread", "Merging", "Rank", "SharedCall", "Stopped", "TooMuchWaits"]

_Result = TypeVar("_Result")


class TooMuchWaits(Exception):
    """The device has more work before it than may wait."""


class DeviceThread:
    """Runs functions, lowest rank first, ties by arrival; each on a stack of its own, all on one thread.

    Work that takes long calls `give_way()` where it can be paused: if better-ranked work waits, that goes on, and this
    one when nothing better is left, where it was. So nothing is recomputed, no state is saved, and no two pieces of
    work ever touch the device at once. At most `max_waiting` wait to be started; `pause_bounds` say how much may lie
    paused.
    """

    def __init__(self, name: str, max_waiting: int = 256, pause_bounds: PauseBounds | None = None) -> None:
        self._name = name
        self._max_waiting = max_waiting
        self._pause_bounds = pause_bounds or PauseBounds()
        # What was allocated when nothing was started.
        self._base_bytes = 0
        self._wake = threading.Condition()
        self._turns = Turns()
        self._merging: Merging | None = None
        self._shared: dict[Group, SharedFibre] = {}
        self._order = itertools.count()
        self._closed = False
        # Something came or was stopped since the hub last looked.
        self._look = False
        self._hub = Hub()
        self._advancing = Advancing()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. Once."""
        self._thread.start()

    def merge_with(self, merging: Merging) -> None:
        """Compute equal calls of work of one kind together from now on."""
        self._merging = merging
        self._turns.gains = merging

    def close(self) -> None:
        """Run nothing more: waiting work is stopped, started work ends at its next `give_way`."""
        with self._wake:
            self._closed = True
            dropped = [work for work in self._turns.works if not work.started]
            for work in dropped:
                self._turns.remove(work)
            for work in self._turns.works:
                work.stopped = True
            self._notice()
        for work in dropped:
            assert isinstance(work, Fibre)
            work.done(None, Stopped())

    @property
    def silent_s(self) -> float:
        """Seconds since running work last called; 0 if none runs, infinite if the thread has died."""
        died = self._thread.ident is not None and not self._thread.is_alive() and not self._closed
        return math.inf if died else self._hub.silent_s

    @property
    def turn_count(self) -> int:
        """Turns taken so far: between two equal readings, running work was not paused."""
        return self._hub.turn_count

    @property
    def pause_count(self) -> int:
        """How often work was paused so far."""
        return self._advancing.pause_count

    @property
    def waiting_count(self) -> int:
        """Pieces of work that have not been started."""
        return sum(not work.started for work in self._turns.works)

    @property
    def started_count(self) -> int:
        """Pieces of work that have been started and are not done."""
        return sum(work.started for work in self._turns.works)

    def waits(self, job_id: str) -> bool:
        """Whether the job has work here, none of which has been started."""
        with self._wake:
            started = [work.started for work in self._turns.works if work.rank[1] == job_id]
        return bool(started) and not any(started)

    async def run(
        self,
        rank: Rank,
        function: Callable[[], _Result],
        *,
        on_pause: Callable[[bool], None] | None = None,
        alone: bool = False,
        holds: bool = False,
        kind: Hashable | None = None,
    ) -> _Result:
        """The function's result, from the device thread.

        `on_pause` is told, there, when the function is paused and when it goes on. `alone`: not while other work is
        paused, whose memory would be taken still, nor other work beside it. `holds`: nothing goes before it once it is
        started. `kind`: its calls may be computed with those of other work of this kind.

        Cancelling the awaiting task drops work that waits and stops work that was started, at its next `give_way`.
        Raises `TooMuchWaits`.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()
        done = partial(_answer, loop, future)
        work = self._put(
            Fibre(rank, next(self._order), kind, alone, holds, function=function, done=done, on_pause=on_pause)
        )
        try:
            return await future
        except asyncio.CancelledError:
            self._stop(work)
            raise
        finally:
            # An error's traceback leads here, and from here would lead back to it: a cycle that holds tensors.
            del future, done, work

    def rerank(self, job_id: str, rank: float) -> None:
        """Rank all work of a job anew, from its next yield point on. From any thread."""
        with self._wake:
            for work in self._turns.works:
                if work.rank[1] == job_id:
                    work.rank = (rank, job_id)
            self._notice()

    def give_way(self, *, in_forward: bool = False) -> None:
        """Called by running work, on the device thread: let all better-ranked work that waits go first.

        `in_forward`: activations lie on the stack, of which no more than `PauseBounds.max_bytes` may be paused. Costs
        next to nothing while nothing waits. Raises `Stopped` if this work was stopped meanwhile.
        """
        if self._look and self._hub.running is not None:
            self._hub.running.in_forward = in_forward
            self._hub.switch_back()
            self._hub.running.in_forward = False
        self.check()

    def check(self) -> None:
        """Called by running work: raises `Stopped` if it was stopped meanwhile."""
        self._hub.passed()
        assert self._hub.running is not None
        if self._hub.running.stopped:
            raise Stopped

    def clock_s(self) -> float:
        """Device seconds that running work has had. They stand still while it is paused."""
        return self._hub.clock_s()

    def meet(self, call: SharedCall) -> bool:
        """Called by running work before it computes a call: whether that has been computed with others' meanwhile.

        If not, it is for the caller to compute, who says so with `inside`. Raises `Stopped`.
        """
        work = self._hub.running
        if not isinstance(work, Fibre) or not self._turns.has_company(work):
            return False
        if work.called_s is not None:
            work.gap_s = self.clock_s() - work.called_s
        work.phase, work.call = Phase.CALLING, call
        self._hub.switch_back()
        work.phase, work.call = Phase.READY, None
        self.check()
        work.called_s = self.clock_s()
        return call.done

    def inside(self, call: SharedCall | None) -> None:
        """Told by running work that it begins to compute a call, and with None that it is done."""
        work = self._hub.running
        if not isinstance(work, Fibre) or work.kind is None:
            return
        work.phase, work.call = (Phase.READY if call is None else Phase.INSIDE), call
        if call is None:
            work.called_s = self.clock_s()
            # Whoever was to come after this call may come now.
            self._look = self._look or self._turns.has_company(work)

    @property
    def kind(self) -> Hashable | None:
        """The running work's; None if its calls are not to be computed with others'."""
        return self._hub.running.kind if isinstance(self._hub.running, Fibre) else None

    @property
    def in_company(self) -> bool:
        """Whether there is other work whose calls may be equal to the running work's."""
        return isinstance(self._hub.running, Fibre) and self._turns.has_company(self._hub.running)

    def _put(self, work: Fibre) -> Fibre:
        with self._wake:
            if self._closed:
                raise RuntimeError(f"{self._name} is closed")
            if self.waiting_count >= self._max_waiting:
                raise TooMuchWaits(f"{self._max_waiting} pieces of work wait already")
            self._turns.add(work)
            self._notice()
        return work

    def _stop(self, work: Fibre) -> None:
        with self._wake:
            work.stopped = True
            if not work.started and work in self._turns.works:
                self._turns.remove(work)
            self._notice()

    def _notice(self) -> None:
        self._look = True
        self._wake.notify_all()

    # On the thread's own stack, between two turns.

    def _loop(self) -> None:
        self._hub.settle()
        # Grad mode is a thread's own.
        with torch.no_grad():
            while (unit := self._next()) is not None:
                self._take_turn(unit)
                del unit

    def _next(self) -> Unit | None:
        with self._wake:
            while True:
                self._look = False
                unit = self._turns.next(self._has_room())
                if isinstance(unit, Fibre) and not unit.started:
                    # From here on it ends itself if it is stopped: it is no longer dropped.
                    unit.phase = Phase.READY
                if unit is not None or self._closed:
                    return unit
                self._wake.wait()

    def _has_room(self) -> bool:
        """Whether one more piece of work may be started, while what was started lies paused."""
        depth = self._turns.depth
        if not depth:
            self._base_bytes = self._pause_bounds.allocated()
            return True
        in_forward = any(shared.in_forward for shared in self._shared.values()) or any(
            isinstance(work, Fibre) and work.in_forward for work in self._turns.works
        )
        return self._pause_bounds.has_room(depth, self._base_bytes, in_forward=in_forward)

    def _take_turn(self, unit: Unit) -> None:
        self._advancing.turn(unit)
        if isinstance(unit, Group):
            shared = self._shared_of(unit)
            self._hub.switch_to(shared)
            if shared.stack.dead:
                self._end_group(shared)
            return
        assert isinstance(unit, Fibre)
        if unit.stack is None:
            unit.begin()
        self._hub.switch_to(unit)
        if unit.stack.dead:
            self._end(unit)

    def _shared_of(self, group: Group) -> SharedFibre:
        if group not in self._shared:
            assert self._merging is not None
            self._shared[group] = SharedFibre(group, self._merging)
        return self._shared[group]

    def _end_group(self, shared: SharedFibre) -> None:
        del self._shared[shared.group]
        with self._wake:
            members = list(shared.group.members)
            self._turns.dissolve(shared.group)
        for work in members:
            assert isinstance(work, Fibre)
            work.spent_s += shared.part_s

    def _end(self, work: Fibre) -> None:
        with self._wake:
            self._turns.remove(work)
        self._advancing.end(work)
        work.end()


def _answer(
    loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", result: Any, error: BaseException | None
) -> None:
    """From the device thread."""
    loop.call_soon_threadsafe(_resolve, future, result, error)


def _resolve(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, Stopped):
        future.cancel()
    else:
        future.set_exception(error)
