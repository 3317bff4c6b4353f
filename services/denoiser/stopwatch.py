"""How long the device takes for a call."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

# Measurements under way at once; more are not taken.
_MAX_PENDING = 64


class Stopwatch:
    """Of one device. A CPU is done when the call returns; an accelerator is not, and tells some calls later.

    `clock_s` stands still while the call is paused. A call that was paused is not measured: it comes back to caches
    that are cold. `turns` counts the changes of who runs.
    """

    def __init__(self, device: torch.device, clock_s: Callable[[], float], turns: Callable[[], int]) -> None:
        self._is_cuda = device.type == "cuda"
        self._clock_s = clock_s
        self._turns = turns
        self._pending: deque[tuple[Any, Any, Callable[[float], None]]] = deque()

    @contextmanager
    def measure(self, tell: Callable[[float], None]) -> Iterator[None]:
        """Tell the seconds of the block, at once or later; of none that raises or is paused."""
        self._tell_done()
        turns, began_s, began = self._turns(), self._clock_s(), self._mark()
        yield
        if self._turns() != turns:
            return
        if not self._is_cuda:
            tell(self._clock_s() - began_s)
        elif len(self._pending) < _MAX_PENDING:
            self._pending.append((began, self._mark(), tell))

    def _mark(self) -> Any:
        if not self._is_cuda:
            return None
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _tell_done(self) -> None:
        while self._pending and self._pending[0][1].query():
            began, ended, tell = self._pending.popleft()
            tell(began.elapsed_time(ended) / 1e3)
