"""Non-negative least squares of three coefficients."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.estimates.quadratic import Point, Quadratic, fit

COEFFICIENTS = st.one_of(st.just(0.0), st.floats(1e-6, 1e3))
SIZES = st.lists(st.floats(1.0, 1e5), min_size=1, max_size=8, unique=True)


@given(COEFFICIENTS, COEFFICIENTS, COEFFICIENTS, SIZES)
def test_points_of_a_law_are_met(a: float, b: float, c: float, sizes: list[float]) -> None:
    law = Quadratic(a, b, c)
    points = [Point(size, law.at(size)) for size in sizes if law.at(size) > 0.0]
    for point in points:
        assert fit(points).at(point.x) == pytest.approx(point.y, rel=1e-3)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(1e-9, 1e9), st.floats(0.01, 100.0)), max_size=8))
def test_never_below_zero_and_never_falling(seen: list[tuple[int, float, float]]) -> None:
    law = fit([Point(*each) for each in seen])
    assert min(law.a, law.b, law.c) >= 0.0
    assert bool(seen) == (law.at(1.0) > 0.0)


def test_no_other_law_is_nearer() -> None:
    points = [Point(1.0, 5.0), Point(2.0, 3.0), Point(3.0, 4.0, 2.0), Point(4.0, 9.0)]

    def loss(law: Quadratic) -> float:
        met = [(law.at(point.x), point) for point in points]
        return sum(point.weight * (f - point.y) ** 2 / (f * point.y) if f else inf for f, point in met)

    best = fit(points)
    grid = [step * 0.05 for step in range(100)]
    assert loss(best) <= 1.02 * min(loss(Quadratic(a, 0.0, c)) for a in grid for c in grid)
    assert loss(best) <= 1.02 * min(loss(Quadratic(a, b, 0.0)) for a in grid for b in grid)
