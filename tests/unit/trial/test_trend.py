"""A slope is seen through noise, and noise is not taken for one."""

import random

from bench.trial.trend import Tolerance, trend

TIMES = [5.0 * index for index in range(200)]


def test_a_leak_is_seen_through_noise() -> None:
    rng = random.Random(1)
    leaking = trend([(time_s, 100 + time_s / 3600 * 50 + rng.uniform(-3, 3)) for time_s in TIMES], Tolerance(24.0))
    level = trend([(time_s, 100 + rng.uniform(-3, 3)) for time_s in TIMES], Tolerance(24.0))
    assert 40 < leaking.per_hour < 60
    assert not leaking.flat
    assert level.flat


def test_one_step_up_is_no_slope() -> None:
    assert trend([(time_s, 10.0 if time_s < 100 else 12.0) for time_s in TIMES], Tolerance(0.0)).flat


def test_a_share_of_the_level_may_be_tolerated() -> None:
    assert trend([(0, 100), (3600, 140)], Tolerance(1.0, share=0.5)).flat
    assert not trend([(0, 100), (3600, 200)], Tolerance(1.0, share=0.5)).flat
