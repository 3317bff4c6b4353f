"""The C library's allocator, in a process of a few threads that make large things in turn."""

import ctypes
import os

# glibc's `mallopt` parameter, from malloc.h.
_M_ARENA_MAX = -8
_ARENAS = 2


def share_arenas() -> bool:
    """Let all threads allocate from two arenas; call it before there are threads. False where that is not glibc's.

    By default each thread gets one, up to eight a core, and what one has freed is of no use to the others.
    MALLOC_ARENA_MAX in the environment comes first.
    """
    if "MALLOC_ARENA_MAX" in os.environ:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_M_ARENA_MAX, _ARENAS) == 1
