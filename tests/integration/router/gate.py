"""A place that work passes when a test lets it."""

import asyncio
import math

WAIT_S = 10.0


class Gate:
    """Lets work pass one place, all of it or so many times, and tells when something has come there."""

    def __init__(self) -> None:
        self._left = math.inf
        self._arrivals = 0
        self._changed = asyncio.Condition()

    def close(self) -> None:
        """Hold what comes from now on."""
        self._left = 0

    async def open(self, times: float = math.inf) -> None:
        """Let work pass so many times."""
        async with self._changed:
            self._left = times
            self._changed.notify_all()

    async def pass_through(self) -> None:
        async with self._changed:
            self._arrivals += 1
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._left > 0)
            self._left -= 1

    async def reached(self, times: int = 1) -> None:
        """Wait until work has come here so many times in all."""
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(lambda: self._arrivals >= times)
