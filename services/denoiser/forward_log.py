"""What one output's forwards cost: how many there were, and with how many others each was computed."""

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass
class Forwards:
    """Equal forwards: how many, and the seconds that they took, others' parts of them left out."""

    count: int = 0
    seconds: float = 0.0


class Batch(NamedTuple):
    """Samples of one forward: the job's own, and all of them, other jobs' included."""

    own: int
    merged: int


@dataclass
class ForwardLog:
    """Forwards of one output."""

    by_batch: dict[Batch, Forwards] = field(default_factory=dict)

    def note(self, batch: Batch, seconds: float) -> None:
        forwards = self.by_batch.setdefault(batch, Forwards())
        forwards.count += 1
        forwards.seconds += seconds

    def shares(self) -> dict[Batch, float]:
        """The part of all seconds that forwards of each batch took. On an accelerator that runs behind: roughly."""
        total = sum(forwards.seconds for forwards in self.by_batch.values())
        return {batch: forwards.seconds / total for batch, forwards in self.by_batch.items()} if total else {}


# Of the work that runs: each has a context of its own.
forward_log: ContextVar[ForwardLog | None] = ContextVar("forward_log", default=None)
