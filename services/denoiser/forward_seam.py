"""The seam between a network and us: where a job's forward can become one with others'."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from services.denoiser.forward_call import ForwardCall
from services.denoiser.forward_log import Batch, forward_log
from services.denoiser.merging import Merging
from services.stage.device_thread import DeviceThread


def add_forward_seam(network: torch.nn.Module, name: str, thread: DeviceThread, merging: Merging) -> None:
    """Let every forward of the network meet others'. `name` tells networks apart.

    Jobs that may not be merged, and those that have no company, compute theirs as they would without.
    """
    stock: Callable[..., Any] = network.forward

    @wraps(stock)
    def forward(*args: Any, **kwargs: Any) -> Any:
        log = forward_log.get()
        if log is None:
            return stock(*args, **kwargs)
        call = ForwardCall(name, stock, args, kwargs, kind=thread.kind)
        began_s = thread.clock_s()
        try:
            return _compute(call, thread, merging)
        finally:
            own = max(1, call.size)
            log.note(Batch(own, own * call.batch), thread.clock_s() - began_s)

    network.forward = forward


def _compute(call: ForwardCall, thread: DeviceThread, merging: Merging) -> Any:
    if call.kind is None:
        return call.alone()
    if thread.meet(call):
        return call.result
    thread.inside(call)
    try:
        return merging.alone(call) if thread.in_company else call.alone()
    finally:
        thread.inside(None)
