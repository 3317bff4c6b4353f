"""The law of a call's time: a part that is always there, one that grows with the size, one with its square."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf, sqrt
from typing import NamedTuple

_SINGULAR = 1e-12
_ROUNDS = 12
_NO_NEWS = 0.01
# Of a value, so that no weight is without bound.
_LEAST = 1e-3


@dataclass(frozen=True, slots=True)
class Quadratic:
    """`a + b·x + c·x²`, none of the three below 0: so it is never below 0, and never falls where x ≥ 0."""

    a: float = 0.0
    b: float = 0.0
    c: float = 0.0

    def at(self, x: float) -> float:
        return self.a + (self.b + self.c * x) * x

    def scaled(self, factor: float) -> "Quadratic":
        return Quadratic(self.a * factor, self.b * factor, self.c * factor)


class Point(NamedTuple):
    """A value `y` above 0 that was seen at `x`, 0 or at least 1, and how much it counts."""

    x: float
    y: float
    weight: float = 1.0


def fit(points: Sequence[Point]) -> Quadratic:
    """The quadratic with the least sum of weighted `(f - y)² / (f · y)`; all 0 where there is no point.

    Half of `y` is as far off as twice `y`: relative errors alone would rather have 0 than too much. Found by least
    squares with weights that are renewed (IRLS), until what they find is no news; they may swing, so the best law that
    they passed is taken.
    """
    law = _least_squares(points)
    best = law
    met = [point.y for point in points]
    for _ in range(_ROUNDS):
        # The mean of this round's and the one before's, lest they swing.
        next_met = [sqrt(before * max(law.at(p.x), p.y * _LEAST)) for before, p in zip(met, points, strict=True)]
        news = max((abs(now / before - 1.0) for before, now in zip(met, next_met, strict=True)), default=0.0)
        if news < _NO_NEWS:
            break
        met = next_met
        law = _least_squares([Point(p.x, p.y, p.weight * p.y / f) for f, p in zip(met, points, strict=True)])
        best = min(best, law, key=lambda each: _loss(each, points))
    return best


def _loss(law: Quadratic, points: Sequence[Point]) -> float:
    """What `fit` makes least."""
    loss = 0.0
    for x, y, weight in points:
        value = law.at(x)
        if value <= 0.0:
            return inf
        loss += weight * (value - y) ** 2 / (value * y)
    return loss


def _least_squares(points: Sequence[Point]) -> Quadratic:
    """The quadratic with the least sum of weighted squares of relative errors.

    Non-negative least squares: of three coefficients the best subset is found by trying all.
    """
    unit = max((point.x for point in points), default=0.0) or 1.0
    rows = [[(point.x / unit) ** power / point.y for power in range(3)] for point in points]
    weights = [point.weight for point in points]
    gram = [
        [sum(w * row[i] * row[j] for w, row in zip(weights, rows, strict=True)) for j in range(3)] for i in range(3)
    ]
    right = [sum(w * row[i] for w, row in zip(weights, rows, strict=True)) for i in range(3)]
    best, best_gain = [0.0, 0.0, 0.0], 0.0
    for subset in _subsets():
        solved = _solve([[gram[i][j] for j in subset] for i in subset], [right[i] for i in subset])
        if solved is None or min(solved) < 0.0:
            continue
        # What the squares fall by; the fewer coefficients win where more gain nothing.
        gain = sum(value * right[i] for i, value in zip(subset, solved, strict=True))
        if gain > best_gain * (1.0 + 1e-9):
            best, best_gain = [0.0, 0.0, 0.0], gain
            for i, value in zip(subset, solved, strict=True):
                best[i] = value
    return Quadratic(best[0], best[1] / unit, best[2] / unit**2)


def _subsets() -> Iterator[tuple[int, ...]]:
    for size in (1, 2, 3):
        yield from combinations(range(3), size)


def _solve(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Solve a positive definite system by elimination; None where it is singular."""
    size = len(right)
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i in range(size):
        pivot = rows[i][i]
        if not _SINGULAR * matrix[i][i] < pivot < inf:
            return None
        for lower in rows[i + 1 :]:
            factor = lower[i] / pivot
            for j in range(i, size + 1):
                lower[j] -= factor * rows[i][j]
    solved = [0.0] * size
    for i in reversed(range(size)):
        known = sum(rows[i][j] * solved[j] for j in range(i + 1, size))
        solved[i] = (rows[i][size] - known) / rows[i][i]
    return solved
