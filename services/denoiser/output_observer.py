"""Carries what happens to one output on the device thread over to the event loop."""

import asyncio
import time
from typing import TYPE_CHECKING

from services.denoiser.checkpoints import Checkpoints
from services.denoiser.config import DenoiserConfig
from services.denoiser.step_seam import CapturedState
from services.stage.device_thread import DeviceThread
from services.stage.tensors import to_bundle

if TYPE_CHECKING:
    from services.denoiser.denoising import Denoising


class OutputObserver:
    """The `Observer` of one output of one job."""

    def __init__(
        self,
        denoising: "Denoising",
        loop: asyncio.AbstractEventLoop,
        thread: DeviceThread,
        config: DenoiserConfig,
        checkpoints: Checkpoints,
        output_index: int,
    ) -> None:
        self._denoising = denoising
        self._loop = loop
        self._thread = thread
        self._config = config
        self._checkpoints = checkpoints
        self._output_index = output_index
        self._last_s: float | None = None
        self._told_s = 0.0

    def before_step(self) -> None:
        if self._last_s is None:
            self._last_s = self._thread.clock_s()
        if self._config.preemption == "off":
            self._thread.check()
        else:
            self._thread.give_way()

    def after_step(self, step: int, step_count: int) -> None:
        now_s = time.monotonic()
        # Each word costs the device thread the interpreter for a while: a step of a small model takes no longer.
        if 0 < step < step_count and now_s - self._told_s < self._config.progress_seconds:
            return
        # The first step is told as soon as it is done.
        self._told_s = now_s if step else 0.0
        self._loop.call_soon_threadsafe(self._denoising.report, self._output_index, step, step_count)

    def checkpoint_due(self) -> bool:
        """Every `checkpoint_seconds` of device time, or when asked, unless the one before is still on its way."""
        assert self._last_s is not None
        waited_s = self._thread.clock_s() - self._last_s
        due = waited_s >= self._config.checkpoint_seconds or self._checkpoints.asked
        return due and not self._checkpoints.storing

    def captured(self, step: int, state: CapturedState) -> None:
        self._last_s = self._thread.clock_s()
        bundle = to_bundle(state)
        self._loop.call_soon_threadsafe(self._checkpoints.store, self._output_index, step, bundle)

    def restart_only(self, reason: str) -> None:
        self._loop.call_soon_threadsafe(self._denoising.restart_only, reason)
