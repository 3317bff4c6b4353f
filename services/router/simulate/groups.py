"""Several cards for one request: how much faster a sequence-parallel group is than one card."""

EFFICIENCY = {1: 1.0, 2: 0.95, 4: 0.88, 8: 0.80}
"""Efficiency by cards of a group, from the source document."""


def speedup(cards: int) -> float:
    """How many times faster than one card. Raises `ValueError` for a size that nobody has measured."""
    if cards not in EFFICIENCY:
        raise ValueError(f"no group of {cards} cards: known sizes are {', '.join(map(str, EFFICIENCY))}")
    return cards * EFFICIENCY[cards]
