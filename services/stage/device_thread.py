"""One thread that owns the device: every piece of device work runs here, best rank first."""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import structlog
import torch
from greenlet import getcurrent, greenlet

from services.stage.nesting import Nesting
from services.stage.torch_state import TorchState
from services.stage.turns import Call, Gains, Group, Phase, Rank, Turns, Unit, Work

__all__ = ["DeviceThread", "Merging", "Rank", "SharedCall", "Stopped", "TooMuchWaits"]

log = structlog.get_logger()
_Result = TypeVar("_Result")


class TooMuchWaits(Exception):
    """The device has more work before it than may wait."""


class Stopped(BaseException):
    """Work that nobody wants any more unwinds with this. Not an Exception: diffusers logs every one that passes."""


class SharedCall(Call, Protocol):
    """A call that may be computed with others'. `done` once it has been."""

    done: bool


class Merging(Gains, Protocol):
    """Computes calls together, and knows when that pays."""

    def compute(self, calls: list[SharedCall]) -> None:
        """Compute them as one, and set `done` on each; on none if that failed and each is to be computed alone."""


@dataclass(eq=False)
class _Fibre(Work):
    """Work with a stack of its own, on the device thread."""

    function: Callable[[], Any] = field(default=lambda: None)
    done: Callable[[Any, BaseException | None], None] = field(default=lambda result, error: None)
    # Told, on the device thread, that it is paused (True) and that it goes on (False).
    on_pause: Callable[[bool], None] | None = None
    stack: Any = None
    result: Any = None
    error: BaseException | None = None
    paused: bool = False
    # It gave way in the middle of a forward, whose activations lie on its stack.
    in_forward: bool = False
    # Device seconds, its part of what was computed with others included; and what they were at its last call's end.
    spent_s: float = 0.0
    called_s: float | None = None


@dataclass(eq=False)
class _Shared:
    """The stack on which a group's call is computed. `size` is how many it was made for."""

    group: Group
    calls: list[SharedCall]
    stack: Any
    in_forward: bool = False
    spent_s: float = 0.0


class DeviceThread:
    """Runs functions, lowest rank first, ties by arrival; each on a stack of its own, all on one thread.

    Work that takes long calls `give_way()` where it can be paused: if better-ranked work waits, that goes on, and this
    one when nothing better is left, where it was. So nothing is recomputed, no state is saved, and no two pieces of
    work ever touch the device at once. At most `max_waiting` wait to be started; `nesting` says how much may lie
    paused.
    """

    def __init__(self, name: str, max_waiting: int = 256, nesting: Nesting | None = None) -> None:
        self._name = name
        self._max_waiting = max_waiting
        self._nesting = nesting or Nesting()
        # What was allocated when nothing was started.
        self._base_bytes = 0
        # When running work last came to a place where it could be interrupted.
        self._passed_s = 0.0
        self._wake = threading.Condition()
        self._turns = Turns()
        self._merging: Merging | None = None
        self._shared: dict[Group, _Shared] = {}
        self._order = itertools.count()
        self._closed = False
        # Something came or was stopped since the hub last looked.
        self._look = False
        self._hub: Any = None
        self._unit: _Fibre | _Shared | None = None
        self._switched_s = 0.0
        # Turns taken so far: between two equal readings, running work was not paused.
        self.turn_count = 0
        # Work that is not paused, whoever runs at the moment.
        self._advancing: list[Work] = []
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
            assert isinstance(work, _Fibre)
            work.done(None, Stopped())

    @property
    def silent_s(self) -> float:
        """Seconds since running work last called; 0 if none runs."""
        return time.monotonic() - self._passed_s if self._unit is not None else 0.0

    @property
    def waiting_count(self) -> int:
        """Pieces of work that have not been started."""
        return sum(not work.started for work in self._turns.works)

    @property
    def started_count(self) -> int:
        """Pieces of work that have been started and are not done."""
        return sum(work.started for work in self._turns.works)

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

        def done(result: Any, error: BaseException | None) -> None:
            loop.call_soon_threadsafe(_resolve, future, result, error)

        work = self._put(
            _Fibre(rank, next(self._order), kind, alone, holds, function=function, done=done, on_pause=on_pause)
        )
        try:
            return await future
        except asyncio.CancelledError:
            self._stop(work)
            raise

    def rerank(self, job_id: str, rank: float) -> None:
        """Rank all work of a job anew, from its next yield point on. From any thread."""
        with self._wake:
            for work in self._turns.works:
                if work.rank[1] == job_id:
                    work.rank = (rank, job_id)
            self._notice()

    def give_way(self, *, in_forward: bool = False) -> None:
        """Called by running work, on the device thread: let all better-ranked work that waits go first.

        `in_forward`: activations lie on the stack, of which no more than `Nesting.max_bytes` may be paused. Costs next
        to nothing while nothing waits. Raises `Stopped` if this work was stopped meanwhile.
        """
        if self._look and self._unit is not None:
            self._unit.in_forward = in_forward
            self._to_hub()
            self._unit.in_forward = False
        self.check()

    def check(self) -> None:
        """Called by running work: raises `Stopped` if it was stopped meanwhile."""
        self._passed_s = time.monotonic()
        unit = self._unit
        if (unit.group if isinstance(unit, _Shared) else unit).stopped:  # type: ignore[union-attr]
            raise Stopped

    def clock_s(self) -> float:
        """Device seconds that running work has had. They stand still while it is paused."""
        assert self._unit is not None
        return self._unit.spent_s + time.perf_counter() - self._switched_s

    def meet(self, call: SharedCall) -> bool:
        """Called by running work before it computes a call: whether that has been computed with others' meanwhile.

        If not, it is for the caller to compute, who says so with `inside`. Raises `Stopped`.
        """
        work = self._unit
        if not isinstance(work, _Fibre) or not self._turns.has_company(work):
            return False
        if work.called_s is not None:
            work.gap_s = self.clock_s() - work.called_s
        work.phase, work.call = Phase.CALLING, call
        self._to_hub()
        work.phase, work.call = Phase.READY, None
        self.check()
        work.called_s = self.clock_s()
        return call.done

    def inside(self, call: SharedCall | None) -> None:
        """Told by running work that it begins to compute a call, and with None that it is done."""
        work = self._unit
        if not isinstance(work, _Fibre) or work.kind is None:
            return
        work.phase, work.call = (Phase.READY if call is None else Phase.INSIDE), call
        if call is None:
            work.called_s = self.clock_s()
            # Whoever was to come after this call may come now.
            self._look = self._look or self._turns.has_company(work)

    @property
    def kind(self) -> Hashable | None:
        """The running work's; None if its calls are not to be computed with others'."""
        return self._unit.kind if isinstance(self._unit, _Fibre) else None

    @property
    def in_company(self) -> bool:
        """Whether there is other work whose calls may be equal to the running work's."""
        return isinstance(self._unit, _Fibre) and self._turns.has_company(self._unit)

    def _put(self, work: _Fibre) -> _Fibre:
        with self._wake:
            if self._closed:
                raise RuntimeError(f"{self._name} is closed")
            if self.waiting_count >= self._max_waiting:
                raise TooMuchWaits(f"{self._max_waiting} pieces of work wait already")
            self._turns.add(work)
            self._notice()
        return work

    def _stop(self, work: _Fibre) -> None:
        with self._wake:
            work.stopped = True
            if not work.started and work in self._turns.works:
                self._turns.remove(work)
            self._notice()

    def _notice(self) -> None:
        self._look = True
        self._wake.notify_all()

    # The hub: on the thread's own stack, between two turns.

    def _loop(self) -> None:
        self._hub = getcurrent()
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
                if unit is not None or self._closed:
                    return unit
                self._wake.wait()

    def _has_room(self) -> bool:
        """Whether one more piece of work may be started, while what was started lies paused."""
        depth = self._turns.depth
        if not depth:
            self._base_bytes = self._nesting.allocated()
            return True
        in_forward = any(shared.in_forward for shared in self._shared.values()) or any(
            isinstance(work, _Fibre) and work.in_forward for work in self._turns.works
        )
        return self._nesting.has_room(depth, self._base_bytes, in_forward=in_forward)

    def _take_turn(self, unit: Unit) -> None:
        self.turn_count += 1
        self._tell_pauses(unit)
        if isinstance(unit, Group):
            shared = self._shared_of(unit)
            self._switch(shared)
            if shared.stack.dead:
                self._end_group(shared)
            return
        assert isinstance(unit, _Fibre)
        if unit.stack is None:
            unit.phase = Phase.READY
            unit.stack = greenlet(lambda: _run(unit))
        self._switch(unit)
        if unit.stack.dead:
            self._end(unit)

    def _switch(self, unit: _Fibre | _Shared) -> None:
        state = TorchState.current()
        self._passed_s = time.monotonic()
        self._unit, self._switched_s = unit, time.perf_counter()
        unit.stack.switch()
        unit.spent_s += time.perf_counter() - self._switched_s
        self._unit = None
        state.restore()

    def _to_hub(self) -> None:
        state = TorchState.current()
        self._hub.switch()
        state.restore()

    def _shared_of(self, group: Group) -> _Shared:
        if group not in self._shared:
            calls: list[Any] = [work.call for work in group.members]
            merging = self._merging
            assert merging is not None
            self._shared[group] = _Shared(group, calls, greenlet(lambda: _compute(merging, calls)))
        return self._shared[group]

    def _end_group(self, shared: _Shared) -> None:
        del self._shared[shared.group]
        with self._wake:
            members = list(shared.group.members)
            self._turns.dissolve(shared.group)
        for work in members:
            assert isinstance(work, _Fibre)
            work.spent_s += shared.spent_s / len(shared.calls)

    def _end(self, work: _Fibre) -> None:
        with self._wake:
            self._turns.remove(work)
        if work in self._advancing:
            self._advancing.remove(work)
        # Nothing of it stays here: an error's traceback holds tensors.
        result, error, work.result, work.error, work.stack = work.result, work.error, None, None, None
        work.done(result, error)

    def _tell_pauses(self, unit: Unit) -> None:
        """Who goes on is not paused. Who does not, is; but not while one comes to a call that another waits at."""
        going = list(unit.members) if isinstance(unit, Group) else [unit]
        alone_at_call = isinstance(unit, Work) and unit.phase is Phase.CALLING
        if all(work in self._advancing for work in going) and not alone_at_call:
            return
        waited_for = any(work.phase is Phase.CALLING and work.kind == going[0].kind for work in self._advancing)
        if isinstance(unit, Work) and not alone_at_call and waited_for:
            return
        for work in self._advancing:
            if work not in going:
                _tell(work, True)
        for work in going:
            _tell(work, False)
        self._advancing = going


def _run(work: _Fibre) -> None:
    try:
        if work.stopped:
            raise Stopped
        work.result = work.function()
    except Stopped:
        # A new one: the traceback of the first holds all tensors of the work.
        work.error = Stopped()
    except BaseException as error:  # noqa: BLE001 - the edge of the device thread
        work.error = error


def _compute(merging: Merging, calls: list[SharedCall]) -> None:
    try:
        merging.compute(calls)
    except Stopped:
        return
    except Exception:
        # Each is computed alone then.
        log.exception("merged_call_failed")


def _tell(work: Work, paused: bool) -> None:
    assert isinstance(work, _Fibre)
    if work.paused is not paused:
        work.paused = paused
        if work.on_pause is not None:
            work.on_pause(paused)


def _resolve(future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, Stopped):
        future.cancel()
    else:
        future.set_exception(error)
