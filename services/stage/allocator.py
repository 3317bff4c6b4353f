"""The C library's allocator, in a process of a few threads that make large things in turn."""

import asyncio
import ctypes
import os
from collections.abc import Callable

from services.stage.calls import Calls

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


def trim() -> None:
    """Give what is free back to the system, from the middle of the arenas too: a few ms. Nothing without glibc.

    By itself glibc gives back only what is free at their ends, so that one small thing may keep all that lay below it.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


async def keep_trimmed(calls: Calls, every_s: float = 5.0, trim: Callable[[], None] = trim) -> None:
    """Trim between calls, if there were any since the last time; so often at most. Runs until cancelled.

    What comes next takes the memory anew, a page at a time: were that after each call, short ones would feel it.
    """
    seen = 0
    while True:
        await asyncio.sleep(every_s)
        if calls.admitted_count > seen:
            await calls.idle()
            seen = calls.admitted_count
            await asyncio.to_thread(trim)
