"""Where the device thread is between two turns: it lets one stack go on at a time, and keeps its time."""

import time
from typing import Any

from greenlet import getcurrent

from services.stage.fibre import Fibre, SharedFibre
from services.stage.torch_state import TorchState


class Hub:
    """Switches to a fibre and back; what torch keeps for a thread is put back at each switch."""

    def __init__(self) -> None:
        self._stack: Any = None
        self._switched_s = 0.0
        # When running work last came to a place where it could be interrupted.
        self._passed_s = 0.0
        # Whoever has the device.
        self.running: Fibre | SharedFibre | None = None
        self.turn_count = 0

    def settle(self) -> None:
        """Called first, on the device thread: its own stack is the hub's."""
        self._stack = getcurrent()

    def switch_to(self, fibre: Fibre | SharedFibre) -> None:
        """Let it go on until it comes back, or is done."""
        state = TorchState.current()
        self.turn_count += 1
        self.passed()
        self.running, self._switched_s = fibre, time.perf_counter()
        fibre.stack.switch()
        fibre.spent_s += time.perf_counter() - self._switched_s
        self.running = None
        state.restore()

    def switch_back(self) -> None:
        """Called by who runs: returns at its next turn."""
        state = TorchState.current()
        self._stack.switch()
        state.restore()

    def passed(self) -> None:
        """Who runs is at a place where it could be interrupted."""
        self._passed_s = time.monotonic()

    @property
    def silent_s(self) -> float:
        """Seconds since running work was last at such a place; 0 if none runs."""
        return time.monotonic() - self._passed_s if self.running is not None else 0.0

    def clock_s(self) -> float:
        """Device seconds that running work has had. They stand still while it is paused."""
        assert self.running is not None
        return self.running.spent_s + time.perf_counter() - self._switched_s
