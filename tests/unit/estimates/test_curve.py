"""A curve: its prior where nothing was measured, the measurements where something was."""

import json
from math import nan
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.estimates.curve import Curve, PointState
from services.router.estimates.quadratic import Quadratic

PRIOR = Quadratic(0.01, 1e-5, 1e-9)
MEASUREMENTS = st.lists(st.tuples(st.sampled_from([64, 256, 1024, 4096]), st.floats(1e-2, 1e1)), max_size=60)


def test_without_measurements_the_prior_holds() -> None:
    assert Curve(PRIOR).law == PRIOR
    assert Curve(Quadratic()).at(10) == 0.0


@pytest.mark.parametrize(
    "truth", [Quadratic(0.5), Quadratic(0.0, 2e-4), Quadratic(0.02, 3e-4), Quadratic(0.1, 1e-4, 5e-8)]
)
@pytest.mark.parametrize("factor", [1.0, 1e-3, 1e4], ids=["near", "far below", "far above"])
def test_it_converges_to_the_truth(truth: Quadratic, factor: float) -> None:
    random, curve = Random(3), Curve(PRIOR.scaled(factor))
    for _ in range(60):
        for size in (64, 576, 1024, 4096):
            curve.observe(size, truth.at(size) * random.lognormvariate(0.0, 0.1))
    for size in (64, 300, 576, 1024, 2000, 4096):
        assert curve.at(size) == pytest.approx(truth.at(size), rel=0.2)


def test_one_size_moves_the_level_and_leaves_the_shape() -> None:
    curve = Curve(PRIOR)
    for _ in range(20):
        curve.observe(1024, 7.0 * PRIOR.at(1024))
    for size in (128, 1024, 8192):
        assert curve.at(size) == pytest.approx(7.0 * PRIOR.at(size), rel=0.15)


def test_one_measurement_and_the_prior_meet_in_between() -> None:
    curve = Curve(Quadratic(1.0))
    curve.observe(0, 16.0)
    assert 3.0 < curve.at(0) < 8.0


def test_outliers_do_not_matter() -> None:
    curve = Curve(PRIOR)
    for number in range(50):
        curve.observe(1024, 100.0 if number % 4 == 0 else 0.1)
    assert curve.at(1024) == pytest.approx(0.1, rel=0.1)


def test_a_bad_measurement_weighs_less() -> None:
    curve = Curve(PRIOR)
    for _ in range(9):
        curve.observe(1024, 5.0, weight=0.1)
    for _ in range(3):
        curve.observe(1024, 1.0)
    assert 0.5 < curve.at(1024) < 1.1


def test_it_follows_a_change() -> None:
    curve = Curve(PRIOR)
    for seconds in [1.0] * 50 + [0.2] * 10:
        curve.observe(1024, seconds)
    assert curve.at(1024) == pytest.approx(0.2, rel=0.1)


@given(MEASUREMENTS, st.integers(1, 10**5), st.integers(1, 10**5))
def test_above_zero_never_falling_and_bounded(measured: list[tuple[int, float]], size: int, other: int) -> None:
    curve = Curve(PRIOR)
    for where, seconds in measured:
        curve.observe(where, seconds)
    assert 0.0 < curve.at(min(size, other)) <= curve.at(max(size, other))
    at_each = [seconds for _, seconds in measured] + [PRIOR.at(where) for where, _ in measured]
    for where, _ in measured:
        assert min(at_each) * 0.1 < curve.at(where) < max(at_each) * 10.0


@given(MEASUREMENTS)
def test_what_was_learnt_survives_as_plain_values(measured: list[tuple[int, float]]) -> None:
    curve, other = Curve(PRIOR), Curve(PRIOR)
    for where, seconds in measured:
        curve.observe(where, seconds)
    other.restore(json.loads(json.dumps(curve.state())))
    assert other.state() == curve.state()
    for where in (64, 1000):
        assert other.at(where) == pytest.approx(curve.at(where), rel=1e-2)


def test_the_sizes_measured_last_are_kept() -> None:
    curve = Curve(PRIOR)
    for size in range(1000):
        for _ in range(3):
            curve.observe(size, 1.0)
    assert len(curve.state()) == 8
    assert len(json.dumps(curve.state())) < 2000


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_measurement_without_sense_teaches_nothing(seconds: float) -> None:
    curve = Curve(PRIOR)
    curve.observe(1, seconds)
    assert curve.law == PRIOR


@pytest.mark.parametrize(
    "state", [(-1, 1.0, [(1.0, 1.0)]), (1, 0.0, [(1.0, 1.0)]), (1, 1.0, []), (1, 1.0, [(nan, 1.0)])]
)
def test_a_state_without_sense_is_refused(state: PointState) -> None:
    with pytest.raises(ValueError, match="not measurements"):
        Curve(PRIOR).restore([state])
