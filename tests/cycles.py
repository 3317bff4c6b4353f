"""What nothing but the collector of cycles lets go."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def left_in_cycles() -> Iterator[list[Any]]:
    """Objects that the work in the block leaves for the collector; the list is filled at the end."""
    found: list[Any] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
