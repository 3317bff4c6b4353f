"""Work with a stack of its own on the device thread, and the stack on which calls of several are computed as one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog
from greenlet import greenlet

from services.stage.turns import Call, Gains, Group, Work
from triptych.tracebacks import clear_frames

log = structlog.get_logger()


class Stopped(BaseException):
    """Work that nobody wants any more unwinds with this. Not an Exception: diffusers logs every one that passes."""


class SharedCall(Call, Protocol):
    """A call that may be computed with others'. `done` once it has been."""

    done: bool


class Merging(Gains, Protocol):
    """Computes calls together, and knows when that pays."""

    def compute(self, calls: list[SharedCall]) -> None:
        """Compute them as one, and set `done` on each; on none if that failed and each is to be computed alone."""


def _nothing() -> None:
    pass


def _to_nobody(result: Any, error: BaseException | None) -> None:
    pass


@dataclass(eq=False)
class Fibre(Work):
    """Work with a stack of its own, on the device thread."""

    function: Callable[[], Any] = field(default=_nothing)
    done: Callable[[Any, BaseException | None], None] = field(default=_to_nobody)
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

    def begin(self) -> None:
        """Give it its stack."""
        self.stack = greenlet(self._run)

    def end(self) -> None:
        """Hand out what came of it. Nothing of it stays here: an error's traceback holds tensors, and this."""
        result, error, done = self.result, self.error, self.done
        self.result = self.error = self.stack = self.on_pause = None
        self.function, self.done = _nothing, _to_nobody
        done(result, error)

    def tell(self, paused: bool) -> None:
        """Tell it, if that is news, that it is paused or goes on."""
        if self.paused is not paused:
            self.paused = paused
            if self.on_pause is not None:
                self.on_pause(paused)

    def _run(self) -> None:
        try:
            if self.stopped:
                raise Stopped
            self.result = self.function()
        except Stopped:
            # A new one: the traceback of the first holds all tensors of the work.
            self.error = Stopped()
        except BaseException as error:  # noqa: BLE001 - the edge of the device thread
            clear_frames(error)
            self.error = error


@dataclass(eq=False)
class SharedFibre:
    """The stack on which a group's call is computed: for all who were in the group when it was made."""

    group: Group
    merging: Merging
    calls: list[Any] = field(init=False)
    stack: Any = field(init=False)
    in_forward: bool = False
    spent_s: float = 0.0

    def __post_init__(self) -> None:
        self.calls = [work.call for work in self.group.members]
        self.stack = greenlet(self._run)

    @property
    def stopped(self) -> bool:
        """Nobody wants it any more."""
        return self.group.stopped

    @property
    def part_s(self) -> float:
        """The device seconds of each."""
        return self.spent_s / len(self.calls)

    def _run(self) -> None:
        try:
            self.merging.compute(self.calls)
        except Stopped:
            return
        except Exception:
            # Each is computed alone then.
            log.exception("merged_call_failed")
