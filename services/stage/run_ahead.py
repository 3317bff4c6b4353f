"""How far the CPU may run ahead of the device: a switch comes as late as what has been queued already."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

import torch


class Event(Protocol):
    """A place in the device's queue, as `torch.cuda.Event` is."""

    def record(self) -> None:
        """Put it behind everything queued so far."""

    def synchronize(self) -> None:
        """Wait until the device has got there."""


class RunAhead:
    """Keeps at most `blocks` blocks queued: before each, it waits for the one that many earlier to begin.

    The device always has that many to do, so it never idles for it. On the device thread only.
    """

    def __init__(self, blocks: int, make_event: Callable[[], Event]) -> None:
        self._blocks = blocks
        self._make_event = make_event
        self._recorded: deque[Event] = deque()

    def mark(self) -> None:
        """A block is about to be queued."""
        event = self._recorded.popleft() if len(self._recorded) > self._blocks else self._make_event()
        event.record()
        self._recorded.append(event)
        if len(self._recorded) > self._blocks:
            self._recorded[0].synchronize()


def run_ahead_on(device: torch.device, blocks: int) -> RunAhead | None:
    """The bound for a device; None where the CPU does not run ahead."""
    if device.type != "cuda":
        return None
    return RunAhead(blocks, torch.cuda.Event)
