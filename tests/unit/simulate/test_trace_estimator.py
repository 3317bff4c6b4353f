"""Requests of a trace, priced from their columns."""

from math import inf, nan
from random import Random

import pytest

from services.router.simulate.trace_estimator import TraceEstimator, TraceRequest

SMALL = TraceRequest("a", "TXT_2_IMG", step_count=30, image_count=1, prompt_length=60)
LARGE = TraceRequest("a", "TXT_2_IMG", step_count=30, image_count=4, prompt_length=60)


def test_like_requests_teach_and_unlike_ones_do_not_much() -> None:
    random, estimator = Random(1), TraceEstimator(prior_s=20.0)
    for _ in range(200):
        estimator.observe(SMALL, 10.0 * random.lognormvariate(0.0, 0.2))
        estimator.observe(LARGE, 40.0 * random.lognormvariate(0.0, 0.2))
    assert estimator.estimate(SMALL) == pytest.approx(10.0, rel=0.3)
    assert estimator.estimate(LARGE) == pytest.approx(40.0, rel=0.3)
    assert 10.0 < estimator.estimate(TraceRequest("another")) < 40.0


def test_before_anything_was_seen_the_prior_holds() -> None:
    assert TraceEstimator(prior_s=5.0).estimate(SMALL) == pytest.approx(5.0)


@pytest.mark.parametrize("seconds", [0.0, -1.0, inf, nan])
def test_what_is_no_duration_teaches_nothing(seconds: float) -> None:
    estimator = TraceEstimator(prior_s=5.0)
    estimator.observe(SMALL, seconds)
    assert estimator.estimate(SMALL) == pytest.approx(5.0)
