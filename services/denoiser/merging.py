"""Forwards of several jobs computed as one: whether that pays, and that it is right, found out while serving."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any, cast

import structlog
import torch

from services.denoiser.forward_call import ForwardCall, Unmergeable, close, together
from services.denoiser.merge_gains import MergeGains
from services.denoiser.stopwatch import Stopwatch
from services.stage.device_thread import DeviceThread
from services.stage.short_memory import is_memory_short

log = structlog.get_logger()
_MAX_KINDS = 64


class Merging:
    """The `Merging` of a device thread.

    The first call of a shape that is computed with others is also computed alone, and that result is the one that is
    taken: a network whose samples do not come out the same, but for rounding, is not given several jobs' again.
    """

    def __init__(self, thread: DeviceThread, device: torch.device, max_batch: int) -> None:
        self.gains = MergeGains(max_batch)
        # The newest shape of each kind of job, the kind met last at the end.
        self._shapes: OrderedDict[str, Hashable] = OrderedDict()
        self._watch = Stopwatch(device, thread.clock_s, lambda: thread.turn_count)

    def paying(self) -> list[str]:
        """Kinds of jobs that gain by being merged. From any thread."""
        return [kind for kind, shape in list(self._shapes.items()) if self.gains.pays(shape)]

    def most(self, call: Any) -> int:
        return 1 if call.signature is None else self.gains.most(call.signature)

    def batch(self, call: Any, available: int) -> int:
        return 1 if call.signature is None else self.gains.batch(call.signature, available)

    def saving_s(self, call: Any, batch: int) -> float | None:
        return self.gains.saving_s(call.signature, batch)

    def alone(self, call: ForwardCall) -> Any:
        """Compute a call of a job that has company by itself; its time is what merging is measured by."""
        if call.signature is None:
            return call.alone()
        with self._watch.measure(partial(self.gains.observe, call.signature, 1)):
            return call.alone()

    def compute(self, calls: Sequence[Any]) -> None:
        """Compute equal calls as one; leaves them undone if that fails."""
        own = cast(Sequence[ForwardCall], calls)
        signature = own[0].signature
        try:
            results = self._compute(own)
        except Exception as error:  # noqa: BLE001 - whatever it is, each may still succeed alone
            if is_memory_short(error):
                log.warning("merge_too_large", batch=len(own), error=str(error))
                self.gains.limit(signature, len(own) - 1)
                return
            log.warning("merge_refused", network=own[0].network, error=f"{type(error).__name__}: {error}")
            self.gains.limit(signature, 1)
            return
        self._note(str(own[0].kind), signature)
        for call, result in zip(own, results, strict=True):
            call.result, call.batch, call.done = result, len(own), True

    def _note(self, kind: str, shape: Hashable) -> None:
        self._shapes[kind] = shape
        self._shapes.move_to_end(kind)
        if len(self._shapes) > _MAX_KINDS:
            self._shapes.popitem(last=False)

    def _compute(self, calls: Sequence[ForwardCall]) -> list[Any]:
        signature = calls[0].signature
        if self.gains.is_checked(signature):
            with self._watch.measure(partial(self.gains.observe, signature, len(calls))):
                return together(calls)
        merged = together(calls)
        alone = [call.alone() for call in calls]
        if not close(merged, alone):
            raise Unmergeable("samples come out different when they are computed together")
        self.gains.check(signature)
        return alone
