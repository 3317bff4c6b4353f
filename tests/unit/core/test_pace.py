"""A worker's pace: seconds observed per second estimated."""

import pytest

from services.router.core.pace import Pace


def told(*ratios: float) -> Pace:
    pace = Pace()
    for ratio in ratios:
        pace.observe(10.0, 10.0 * ratio)
    return pace


def test_one_task_that_was_estimated_by_nothing_makes_nobody_slow() -> None:
    assert told(1000.0, 1.0, 1.0, 1.0, 1.0).step == 0
    assert told(0.001, 1.0, 1.0, 1.0, 1.0).step == 0


@pytest.mark.parametrize(("ratio", "step"), [(3.0, 2), (1 / 3, -1), (1.0, 0)])
def test_five_tasks_tell(ratio: float, step: int) -> None:
    assert told(*[ratio] * 4).step == 0
    assert told(*[ratio] * 5).step == step


def test_it_gets_well_again() -> None:
    assert told(*[3.0] * 9).step > told(*[3.0] * 9, *[1.0] * 12).step == 0


def test_it_comes_near_to_what_is_observed_and_stays_bounded() -> None:
    assert told(*[6.0] * 60).ratio == pytest.approx(6.0, rel=0.01)
    assert told(*[1e9] * 99).ratio == pytest.approx(16.0, rel=0.01)


def test_what_makes_no_sense_teaches_nothing() -> None:
    pace = Pace()
    for estimate_s, seconds in ((0.0, 1.0), (1.0, 0.0), (1.0, float("inf")), (1.0, float("nan"))):
        for _ in range(9):
            pace.observe(estimate_s, seconds)
    assert pace == Pace()
