"""What goes early, so that a store does not get full."""

from typing import Protocol


class Pruning(Protocol):
    """Makes room in one store. What jobs that are not over need stays, and what is promised to who made the others."""

    async def prune(self, share: float) -> int:
        """Remove about such a share (0 to 1) of what is there, the oldest first; returns how much went, 0 for nothing.

        Bounded: where more has to go, it is asked again. Raises Deposed, ExchangeUnavailable.
        """
        ...
