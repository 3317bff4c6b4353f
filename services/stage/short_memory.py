"""Work that runs out of memory is tried once more, with the device for itself."""

import gc
from collections.abc import Callable, Hashable
from typing import TypeVar

import structlog
import torch

from services.stage.device_thread import DeviceThread, Rank

log = structlog.get_logger()
_Result = TypeVar("_Result")
# What torch's allocator says on a CPU, where it raises a bare RuntimeError.
_CPU_SHORT = "DefaultCPUAllocator: can't allocate memory"


def is_memory_short(error: BaseException) -> bool:
    """Whether an allocation failed, on whatever device."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and _CPU_SHORT in str(error)
    )


async def run_twice(
    thread: DeviceThread,
    rank: Rank,
    function: Callable[[], _Result],
    *,
    alone: Callable[[], _Result] | None = None,
    on_pause: Callable[[bool], None] | None = None,
    holds: bool = False,
    kind: Hashable | None = None,
) -> _Result:
    """The function's result; if memory is short, that of `alone` (by default the same), while nothing else is on.

    Options are those of `DeviceThread.run`. Raises what the function raises, short memory the second time too.
    """
    try:
        return await thread.run(rank, function, on_pause=on_pause, holds=holds, kind=kind)
    except (RuntimeError, MemoryError) as error:
        if not is_memory_short(error):
            raise
        log.warning("memory_short", job_id=rank[1], error=str(error))
    # Only here: until the exception is gone, its traceback holds the failed run's tensors.
    return await thread.run(rank, lambda: _with_empty_caches(alone or function), alone=True)


def _with_empty_caches(function: Callable[[], _Result]) -> _Result:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return function()
