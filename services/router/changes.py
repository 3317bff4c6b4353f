"""Something that changes again and again, and those who wait for its next change."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Changes:
    """Tells of changes. Each wakes everyone who asked for the next one before it."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def tell(self) -> None:
        """There is a change."""
        told, self._next = self._next, asyncio.Event()
        told.set()

    def next(self) -> Coroutine[Any, Any, bool]:
        """Return what waits for the first change after this call, however late it is awaited.

        Not a coroutine function: in a task of its own it would begin later, and miss the changes before that.
        """
        return self._next.wait()
