"""What a router that leads may do, and for how long: its term, as whoever acts in its name knows it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mandate:
    """Of one term, whose number is `epoch`.

    `confirm` returns if no other router can have led since the term began; it raises Deposed, ExchangeUnavailable.
    `give_up` ends the term: it is told why.
    """

    epoch: int
    confirm: Callable[[], Awaitable[None]]
    give_up: Callable[[str], None]
