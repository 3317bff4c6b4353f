"""Percentiles, by the rule of the source document."""

from collections.abc import Sequence


def percentile(values: Sequence[float], q: float) -> float | None:
    """The value at `q` (0 to 1) of all of them in order, `sorted(values)[min(n - 1, int(q · n))]`; None of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None
