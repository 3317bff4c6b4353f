"""Tells of a job's pauses, the long ones: a short job in its midst is nobody's concern."""

import asyncio
from collections.abc import Callable

from triptych.v1.denoiser_service_pb2 import DenoiseResponse
from triptych.v1.job_pb2 import JobPaused, JobResumed

NOTABLE_S = 1.0


class Pauses:
    """Of one call. `told` is called on the device thread; `tell` on the event loop, in pairs."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tell: Callable[[DenoiseResponse], None]) -> None:
        self._loop = loop
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None
        self._is_told = False

    def told(self, paused: bool) -> None:
        """The work was interrupted, or goes on."""
        self._loop.call_soon_threadsafe(self._begin if paused else self._end)

    def close(self) -> None:
        """Tell no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self.close()
        self._timer = self._loop.call_later(NOTABLE_S, self._tell_paused)

    def _end(self) -> None:
        self.close()
        if self._is_told:
            self._is_told = False
            self._tell(DenoiseResponse(resumed=JobResumed()))

    def _tell_paused(self) -> None:
        self._is_told = True
        self._tell(DenoiseResponse(paused=JobPaused()))
