"""The estimator: priors that measurements correct, by model, stage, device and batch."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.core.job import Stage
from services.router.estimates.estimate_error import ErrorLog, EstimateError
from services.router.estimates.estimator import CurveEstimator, Sample, Serving
from services.router.estimates.price import JobShape, ModelCost, TokenGrid

COST = ModelCost(TokenGrid(), tflop_per_ktoken=450.0, forward_s=0.5, encode_s=0.25, decode_s_per_megapixel=2.0)
SHAPE = JobShape("m", 320, 400, step_count=10, forwards_per_step=2, output_count=3)
TOKENS = 500
DEVICES = st.dictionaries(st.sampled_from(["fast", "slow", "other"]), st.integers(1, 9), min_size=1)


def estimator() -> CurveEstimator:
    return CurveEstimator({"m": COST})


def on(device: str) -> Serving:
    return Serving({stage: {device: 2} for stage in Stage})


def forwards(device: str, forward_s: float, *, calls: int = 40, batch: int = 1, model: str = "m") -> Sample:
    return Sample(model, Stage.DENOISE, device, TOKENS, calls * forward_s, calls, batch)


def test_without_measurements_the_prior_holds() -> None:
    estimate = estimator().estimate(SHAPE, Serving())
    assert (estimate.forward_count, estimate.token_count) == (60, TOKENS)
    assert estimate.seconds.encode_s == 0.25
    assert estimate.seconds.denoise_s == pytest.approx(60 * (0.5 + 0.5))
    assert estimate.seconds.decode_s == pytest.approx(3 * 0.128 * 2.0)


def test_each_device_has_its_own_measurements() -> None:
    learner = estimator()
    for _ in range(30):
        learner.observe(forwards("fast", 0.1))
        learner.observe(forwards("slow", 4.0))
    assert learner.estimate(SHAPE, on("fast")).seconds.denoise_s == pytest.approx(60 * 0.1, rel=0.1)
    assert learner.estimate(SHAPE, on("slow")).seconds.denoise_s == pytest.approx(60 * 4.0, rel=0.1)
    assert learner.estimate(SHAPE, on("new")).seconds.denoise_s == pytest.approx(60.0)


@given(DEVICES)
def test_a_mixed_fleet_is_done_with_a_backlog_when_the_estimate_says(devices: dict[str, int]) -> None:
    learner = estimator()
    for device, forward_s in (("fast", 0.1), ("slow", 4.0), ("other", 1.0)):
        for _ in range(5):
            learner.observe(forwards(device, forward_s))
    together_s = learner.stage_s(SHAPE, Stage.DENOISE, devices)
    alone_s = {device: learner.stage_s(SHAPE, Stage.DENOISE, {device: 1}) for device in devices}
    # Jobs a second of all workers, each at its own speed.
    rate = sum(count / alone_s[device] for device, count in devices.items())
    assert sum(devices.values()) / together_s == pytest.approx(rate)
    assert min(alone_s.values()) * 0.999 <= together_s <= max(alone_s.values()) * 1.001


def test_a_new_batch_costs_as_many_times_what_one_sample_does() -> None:
    learner = estimator()
    for _ in range(30):
        learner.observe(forwards("fast", 0.1))
    learner.passes.observe(SHAPE, 30, batch=2)
    assert learner.estimate(SHAPE, on("fast")).seconds.denoise_s == pytest.approx(30 * 0.2, rel=0.1)
    for _ in range(30):
        learner.observe(forwards("fast", 0.12, batch=2))
    assert learner.estimate(SHAPE, on("fast")).seconds.denoise_s == pytest.approx(30 * 0.12, rel=0.1)


def test_the_device_s_own_speed_is_the_prior_where_the_cost_does_not_say() -> None:
    learner = CurveEstimator({"m": ModelCost(TokenGrid(), tflop_per_ktoken=1.0, effective_tflops=None)})
    learner.set_speed("cpu", 0.05)
    assert learner.estimate(SHAPE, on("cpu")).seconds.denoise_s == pytest.approx(60 * 0.5 / 0.05)
    assert learner.estimate(SHAPE, on("?")).seconds.denoise_s == pytest.approx(60 * 0.5 / 450)


def test_a_kind_of_device_that_slows_down_is_believed_after_a_few_calls() -> None:
    learner = estimator()
    for forward_s, times in ((0.1, 30), (0.3, 5)):
        for _ in range(times):
            learner.observe(forwards("slower", forward_s))
            learner.observe(forwards("same", 0.1))
    assert learner.estimate(SHAPE, on("slower")).seconds.denoise_s == pytest.approx(60 * 0.3, rel=0.1)
    assert learner.estimate(SHAPE, on("same")).seconds.denoise_s == pytest.approx(60 * 0.1, rel=0.1)


def test_one_slow_worker_of_a_kind_does_not_make_the_others_dear() -> None:
    """Its own pace is its own: the kind's estimates stay those of most of its calls."""
    learner = estimator()
    for _ in range(30):
        for forward_s in (0.1, 0.1, 0.3, 0.1):
            learner.observe(forwards("d", forward_s))
    assert learner.estimate(SHAPE, on("d")).seconds.denoise_s == pytest.approx(60 * 0.1, rel=0.1)


def test_the_error_is_that_of_what_was_foretold() -> None:
    learner = estimator()
    assert learner.errors() == {}
    learner.observe(forwards("d", 2.0))  # the prior says 1 s
    learner.observe(forwards("other", 1.0))
    first = learner.errors()["m", Stage.DENOISE, "d"]
    assert (first.sample_count, first.median_s) == (1, pytest.approx(1.0))
    assert (first.median_relative, first.bias) == (pytest.approx(0.5), pytest.approx(-0.5))
    for _ in range(100):
        learner.observe(forwards("d", 2.0))
    learnt = learner.errors()["m", Stage.DENOISE, "d"]
    assert (learnt.sample_count, learnt.median_relative) == (101, pytest.approx(0.0, abs=0.05))
    assert learnt.bias == pytest.approx(0.0, abs=0.05)
    assert learner.errors()["m", Stage.DENOISE, "other"].bias == pytest.approx(0.0)


def test_errors_of_estimates_that_are_right_on_the_average_have_no_bias() -> None:
    log = ErrorLog()
    for estimated_s, measured_s in ((3.0, 2.0), (1.0, 2.0), (5.0, 4.0), (3.0, 4.0)):
        log.add(estimated_s, measured_s)
    assert log.error() == EstimateError(sample_count=4, median_s=1.0, median_relative=0.375, bias=0.0)


def test_another_prior_forgets_nothing_and_another_grid_what_forwards_took() -> None:
    learner = estimator()
    for _ in range(30):
        learner.observe(forwards("d", 3.0))
        learner.observe(Sample("m", Stage.ENCODE, "d", 0, 5.0))
    learner.set_cost("m", ModelCost(TokenGrid(), 1.0, encode_s=1.0))
    seconds = learner.estimate(SHAPE, on("d")).seconds
    assert (seconds.denoise_s, seconds.encode_s) == pytest.approx((180.0, 5.0), rel=0.1)
    learner.set_cost("m", ModelCost(TokenGrid(patch_size=1), 0.0, forward_s=1.0))
    seconds = learner.estimate(SHAPE, on("d")).seconds
    assert (seconds.denoise_s, seconds.encode_s) == pytest.approx((60.0, 5.0), rel=0.1)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(list(Stage)), st.floats(1e-3, 1e3)), max_size=30))
def test_what_was_learnt_survives_as_plain_values(seen: list[tuple[str, Stage, float]]) -> None:
    learner, other = estimator(), estimator()
    for device, stage, seconds in seen:
        learner.observe(Sample("m", stage, device, TOKENS, seconds))
        learner.observe_load("m", stage, device, seconds)
    other.restore(json.loads(json.dumps(learner.state())))
    assert other.state() == learner.state()
    for device in "abc":
        assert other.estimate(SHAPE, on(device)).seconds.total_s == pytest.approx(
            learner.estimate(SHAPE, on(device)).seconds.total_s, rel=1e-2
        )


def test_what_is_kept_is_bounded() -> None:
    learner = estimator()
    for number in range(1000):
        for size in range(10):
            learner.observe(Sample("m", Stage.DENOISE, f"device {number}", size * 100, 1.23456789))
        learner.observe_load("m", Stage.DENOISE, f"device {number}", 1.0)
        learner.set_speed(f"device {number}", 1.0)
        learner.passes.observe(JobShape(f"model {number}", 64, 64, 1), 1, 1)
    assert len(learner.state()["curves"]) == len(learner.state()["loads"]) == len(learner.state()["passes"]) == 512
    assert len(json.dumps(learner.state())) < 800_000


def test_a_few_forwards_say_little() -> None:
    learner = estimator()
    for _ in range(4):
        learner.observe(forwards("d", 9.0, calls=1))
    learner.observe(forwards("d", 1.0))
    assert learner.estimate(SHAPE, on("d")).seconds.denoise_s == pytest.approx(60.0, rel=0.2)


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(KeyError, match="other"):
        estimator().estimate(JobShape("other", 64, 64, 1), Serving())
    with pytest.raises(KeyError, match="other"):
        estimator().observe(forwards("d", 1.0, model="other"))
