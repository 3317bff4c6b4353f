"""The estimator: a prior that measurements correct."""

import json

import pytest

from services.router.core.estimator import Sample, ScaledEstimator
from services.router.core.job import Stage
from services.router.core.price import JobShape, ModelCost, TokenGrid

COST = ModelCost(TokenGrid(), tflop_per_ktoken=450.0, forward_s=0.5, encode_s=0.25, decode_s_per_megapixel=2.0)
SHAPE = JobShape("m", 320, 400, step_count=10, forwards_per_step=2, output_count=3)


def estimator(**options: float) -> ScaledEstimator:
    return ScaledEstimator({"m": COST}, **options)  # type: ignore[arg-type]


def test_without_measurements_the_prior_holds() -> None:
    estimate = estimator().estimate(SHAPE)
    assert (estimate.forward_count, estimate.token_count) == (60, 500)
    assert estimate.seconds.encode_s == 0.25
    assert estimate.seconds.denoise_s == pytest.approx(60 * (0.5 + 0.5))
    assert estimate.seconds.decode_s == pytest.approx(3 * 0.128 * 2.0)


def test_the_prior_counts_as_one_measurement_and_the_geometric_mean_decides() -> None:
    learner = estimator()
    learner.observe(Sample(SHAPE, Stage.DENOISE, 60.0 * 16))
    assert learner.estimate(SHAPE).seconds.denoise_s == pytest.approx(60.0 * 4)
    learner.observe(Sample(SHAPE, Stage.DENOISE, 60.0 * 4))
    assert learner.estimate(SHAPE).seconds.denoise_s == pytest.approx(60.0 * 4)
    assert learner.estimate(SHAPE).seconds.encode_s == 0.25


def test_it_converges_to_another_speed_and_follows_a_change() -> None:
    learner = estimator(history=16)
    for factor in (10.0, 0.1):
        for _ in range(200):
            learner.observe(Sample(SHAPE, Stage.DECODE, factor * COST.decode_s(SHAPE)))
        ratio = learner.estimate(SHAPE).seconds.decode_s / COST.decode_s(SHAPE)
        assert ratio == pytest.approx(factor, rel=0.2)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_measurement_without_sense_teaches_nothing(seconds: float) -> None:
    learner = estimator()
    learner.observe(Sample(SHAPE, Stage.DENOISE, seconds))
    assert learner.state() == {}


def test_what_was_learnt_survives_as_plain_values() -> None:
    learner = estimator()
    learner.observe(Sample(SHAPE, Stage.DENOISE, 7.0))
    other = estimator()
    other.restore(json.loads(json.dumps(learner.state() | {"unknown": {"encode": (1.0, 1)}})))
    assert other.estimate(SHAPE) == learner.estimate(SHAPE)


def test_a_new_prior_starts_afresh() -> None:
    learner = estimator()
    learner.observe(Sample(SHAPE, Stage.ENCODE, 7.0))
    learner.set_cost("m", COST)
    assert learner.state()
    learner.set_cost("m", ModelCost(TokenGrid(), 1.0, encode_s=3.0))
    assert learner.estimate(SHAPE).seconds.encode_s == 3.0


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(KeyError, match="other"):
        estimator().estimate(JobShape("other", 64, 64, 1))
