"""How many bytes are taken at the moment: what paused work holds is the difference between two readings."""

import ctypes
from collections.abc import Callable
from functools import cache

import torch

Allocated = Callable[[], int]


def allocated_on(device: torch.device) -> Allocated:
    """What tells the bytes allocated on a device.

    On an accelerator they are torch's own account. On a CPU torch keeps none: they are what the C library has given out
    to the whole process, which counts other threads' buffers too; 0 where it cannot tell (anything but glibc).
    """
    if device.type == "cuda":
        return lambda: torch.cuda.memory_allocated(device)
    if device.type == "mps":
        return torch.mps.current_allocated_memory
    return _allocated_by_glibc


class _MallInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33 and later."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


@cache
def _mallinfo2() -> Callable[[], _MallInfo] | None:
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        return None
    function.restype = _MallInfo
    return function


def _allocated_by_glibc() -> int:
    function = _mallinfo2()
    if function is None:
        return 0
    info = function()
    # Small pieces lie in the heap, large ones are mapped each by itself.
    return int(info.uordblks + info.hblkhd)
