"""How much work may lie paused on the device thread, beside the work that runs."""

from collections.abc import Callable
from dataclasses import dataclass


def _untold() -> int:
    return 0


@dataclass(frozen=True)
class PauseBounds:
    """Bounds of what is paused.

    At most `max_count` pieces of work are paused at once in the middle of something. Once they hold `max_bytes`
    together (the rise of `allocated` since none was) no more is paused in the middle of a forward, where the
    activations are; between two steps a job holds little more than its latents.
    """

    max_count: int = 4
    max_bytes: int | None = None
    allocated: Callable[[], int] = _untold

    def has_room(self, count: int, base_bytes: int, *, in_forward: bool) -> bool:
        """Whether one more may be paused, when `count` pieces would be and `base_bytes` were taken at first."""
        if count > self.max_count:
            return False
        return not in_forward or self.max_bytes is None or self.allocated() - base_bytes <= self.max_bytes
