"""Tells of a job's pauses, the long ones: a short job in its midst is nobody's concern."""

import asyncio
from collections.abc import Callable

from triptych.v1.denoiser_service_pb2 import DenoiseResponse
from triptych.v1.job_pb2 import JobPaused, JobResumed

NOTABLE_S = 1.0


class Pauses:
    """Of one call, which is paused while all its outputs that were begun are. `tell` is called in pairs.

    `told` is called on the device thread, all else on the event loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[[DenoiseResponse], None]) -> None:
        self._loop = loop
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None
        self._begun: set[int] = set()
        self._paused: set[int] = set()
        self._is_told = False

    def told(self, output_index: int, paused: bool) -> None:
        """An output's work was paused, or goes on."""
        change = self._paused.add if paused else self._paused.discard
        self._loop.call_soon_threadsafe(self._changed, change, output_index)

    def begin(self, output_index: int) -> None:
        """An output's first step is about to run."""
        if output_index not in self._begun:
            self._changed(self._begun.add, output_index)

    def end(self, output_index: int) -> None:
        """An output is done."""
        self._paused.discard(output_index)
        self._changed(self._begun.discard, output_index)

    def close(self) -> None:
        """Tell no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _changed(self, change: Callable[[int], None], output_index: int) -> None:
        change(output_index)
        self.close()
        if self._begun and self._begun <= self._paused:
            self._timer = self._loop.call_later(NOTABLE_S, self._tell_paused)
        elif self._is_told:
            self._is_told = False
            self._tell(DenoiseResponse(resumed=JobResumed()))

    def _tell_paused(self) -> None:
        if not self._is_told:
            self._is_told = True
            self._tell(DenoiseResponse(paused=JobPaused()))
