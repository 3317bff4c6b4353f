"""Specs become shapes, shapes become seconds."""

import json
from math import inf, nan
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict

from services.router.core.job import Stage
from services.router.estimates.estimator import Estimate, Serving
from services.router.pricing import Pricing, estimate_message, stage_seconds
from tests.unit.router.profiles import PROFILE
from triptych.catalog import Catalog, CatalogModel, Cost
from triptych.durations import duration_of, seconds_of
from triptych.v1.job_pb2 import JobSpec
from triptych.v1.worker_pb2 import DeclaredInput, Measurement, ModelProfile, WorkerHeartbeat, WorkerModel

COST = Cost(tflop_per_ktoken=2.0, effective_tflops=100.0, forward_s=0.01, encode_s=0.5, decode_s_per_megapixel=2.0)


@pytest.fixture
def pricing() -> Pricing:
    made = Pricing(Catalog({"model": CatalogModel("somewhere", cost=COST)}, Path()))
    made.learn(PROFILE)
    return made


def spec(**fields: object) -> JobSpec:
    given = {"model": "model", "width": 512, "height": 512, "step_count": 10, "guidance": 4.0, "output_count": 1}
    return ParseDict({**given, **fields}, JobSpec())


def price(pricing: Pricing, of: JobSpec | None = None, serving: Serving = Serving()) -> Estimate:  # noqa: B008
    return pricing.price(of or spec(), serving)


def test_the_law(pricing: Pricing) -> None:
    estimate = price(pricing)
    tokens = (512 // 16) ** 2
    assert (estimate.forward_count, estimate.token_count) == (20, tokens)
    assert estimate.seconds.denoise_s == pytest.approx(20 * (0.01 + tokens / 1000 * 2.0 / 100.0))
    assert estimate.seconds.encode_s == pytest.approx(0.5)
    assert estimate.seconds.decode_s == pytest.approx(0.512**2 * 2.0)


@pytest.mark.parametrize(("guidance", "forwards"), [(4.0, 2), (1.0, 1), (0.0, 1), (1.01, 2)])
def test_guidance_above_one_takes_two_forwards(pricing: Pricing, guidance: float, forwards: int) -> None:
    assert pricing.shape(spec(guidance=guidance)).forwards_per_step == forwards


def test_distilled_guidance_takes_one(pricing: Pricing) -> None:
    distilled = ModelProfile()
    distilled.CopyFrom(PROFILE)
    distilled.inputs.append(DeclaredInput(name="guidance_scale", type_hint="float"))
    pricing.learn(distilled)
    assert pricing.shape(spec()).forwards_per_step == 1


def test_frames_and_outputs_count(pricing: Pricing) -> None:
    one, film = price(pricing), price(pricing, spec(frame_count=17))
    assert film.token_count == one.token_count * 5
    assert film.seconds.decode_s == pytest.approx(one.seconds.decode_s * 17)
    assert price(pricing, spec(output_count=3)).seconds.denoise_s == pytest.approx(one.seconds.denoise_s * 3)


def test_a_given_image_saves_steps(pricing: Pricing) -> None:
    part = spec(extra={"strength": 0.5}, attachments=[{"role": 1}])
    assert pricing.shape(part).step_count == 5
    assert pricing.shape(spec(extra={"strength": 0.5})).step_count == 10


ON_CPU = Serving({stage: {"cpu x86_64": 1} for stage in Stage})


def measurement(seconds_: float, calls: int, *, batch: int = 1, tokens: int = 0) -> Measurement:
    return Measurement(
        model="model", token_count=tokens, batch_size=batch, call_count=calls, device_time=duration_of(seconds_)
    )


def test_measurements_correct_the_prior(pricing: Pricing) -> None:
    before = price(pricing, serving=ON_CPU).seconds
    for _ in range(20):
        pricing.observe_denoise(spec(output_count=2), "cpu x86_64", before.denoise_s * 3, 1, [])
    after = price(pricing, serving=ON_CPU).seconds
    assert after.denoise_s == pytest.approx(before.denoise_s * 3, rel=0.1)
    assert after.decode_s == before.decode_s
    assert price(pricing).seconds == before
    assert set(pricing.errors()) == {("model", Stage.DENOISE, "cpu x86_64")}


def test_two_sizes_teach_the_shape(pricing: Pricing) -> None:
    small, large = spec(width=256, height=256), spec(width=1024, height=1024)
    for of, forward_s in ((small, 0.4), (large, 1.0)):
        for _ in range(10):
            pricing.observe_denoise(of, "cpu x86_64", 0.0, 1, [measurement(20 * forward_s, 20)])
    assert price(pricing, small, ON_CPU).seconds.denoise_s == pytest.approx(20 * 0.4, rel=0.1)
    assert price(pricing, large, ON_CPU).seconds.denoise_s == pytest.approx(20 * 1.0, rel=0.1)


def test_what_the_guider_runs_is_what_counts(pricing: Pricing) -> None:
    for _ in range(20):
        pricing.observe_denoise(spec(), "cpu x86_64", 0.0, 1, [measurement(10 * 0.5, 10, batch=2)])
    estimate = price(pricing, serving=ON_CPU)
    assert estimate.forward_count == 10
    assert estimate.seconds.denoise_s == pytest.approx(10 * 0.5, rel=0.1)
    assert price(pricing, spec(guidance=1.0), ON_CPU).forward_count == 10


def test_a_device_is_known_by_its_kind(pricing: Pricing) -> None:
    for index in range(10):
        pricing.observe(spec(), Stage.DECODE, f"cuda:{index} NVIDIA H200", 0.125)
    serving = Serving({Stage.DECODE: {"cuda NVIDIA H200": 8}})
    assert price(pricing, serving=serving).seconds.decode_s == pytest.approx(0.125, rel=0.2)


def test_what_teaches_nothing(pricing: Pricing) -> None:
    before = price(pricing)
    pricing.observe(spec(), Stage.DENOISE, "", 0.0, 1)
    pricing.observe(spec(), Stage.DENOISE, "", 5.0, 0)
    pricing.observe_denoise(spec(), "", 5.0, 0, [measurement(5.0, 3)])
    pricing.observe(spec(model="other"), Stage.DENOISE, "", 5.0)
    pricing.observe_denoise(spec(model="other"), "", 5.0, 1, [])
    pricing.learn(ModelProfile(name="not in the catalog"))
    pricing.hear(WorkerHeartbeat(models=[WorkerModel(profile=ModelProfile(name="not in the catalog"))]))
    assert price(pricing) == before


def heartbeat(**fields: object) -> WorkerHeartbeat:
    models = [{"profile": {"name": "model"}, **fields}]
    beat = {"stage": "STAGE_DENOISE", "device": "cpu x86_64", "device_tflops": 2.0, "models": models}
    return ParseDict(beat, WorkerHeartbeat())


def test_what_a_worker_counts_holds_where_the_catalog_is_silent() -> None:
    made = Pricing(Catalog({"model": CatalogModel("somewhere", cost=Cost())}, Path()))
    made.learn(PROFILE)
    counted = [{"token_count": n, "tflop": 0.5 + 2e-3 * n + 1e-6 * n * n} for n in (256, 1024, 4096)]
    made.hear(heartbeat(forward_costs=counted))
    tokens = (512 // 16) ** 2
    tflop = 0.5 + 2e-3 * tokens + 1e-6 * tokens**2
    assert price(made, serving=ON_CPU).seconds.denoise_s == pytest.approx(20 * tflop / 2.0, rel=1e-3)
    assert price(made).seconds.denoise_s == pytest.approx(20 * tflop / 450.0, rel=1e-3)


def test_the_catalog_overrides_what_a_worker_counts(pricing: Pricing) -> None:
    before = price(pricing, serving=ON_CPU)
    pricing.hear(heartbeat(forward_costs=[{"token_count": 64, "tflop": 7.0}]))
    assert price(pricing, serving=ON_CPU) == before


def test_a_cold_stage_has_its_loading_priced_in(pricing: Pricing) -> None:
    hot = price(pricing, serving=ON_CPU).seconds
    cold = Serving(ON_CPU.devices, frozenset({Stage.DENOISE}))
    assert price(pricing, serving=cold).seconds.denoise_s == pytest.approx(hot.denoise_s + COST.load_s)
    for _ in range(10):
        pricing.hear(heartbeat(load_time="2.5s"))
    assert price(pricing, serving=cold).seconds.denoise_s == pytest.approx(hot.denoise_s + 2.5, rel=0.1)


def test_what_was_learnt_survives_and_waits_for_its_model(pricing: Pricing) -> None:
    pricing.observe_denoise(spec(), "cpu x86_64", 0.0, 1, [measurement(7.0, 10, batch=2)])
    pricing.hear(heartbeat(load_time="2.5s"))
    other = Pricing(Catalog({"model": CatalogModel("somewhere", cost=COST)}, Path()))
    other.restore(json.loads(json.dumps(pricing.state())))
    assert other.state() == pricing.state()
    other.learn(PROFILE)
    cold = Serving(ON_CPU.devices, frozenset({Stage.DENOISE}))
    assert price(other, serving=cold).seconds.total_s == pytest.approx(price(pricing, serving=cold).seconds.total_s)


@pytest.mark.parametrize("state", [{}, {"version": 99}, {"version": 1}, {"version": 1, "curves": 3, "loads": []}])
def test_a_state_that_cannot_be_read_is_refused(pricing: Pricing, state: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="estimates"):
        pricing.restore(state)


def test_a_model_nobody_told_of_has_no_price(pricing: Pricing) -> None:
    with pytest.raises(KeyError):
        price(pricing, spec(model="other"))


def test_messages_there_and_back(pricing: Pricing) -> None:
    estimate = price(pricing)
    message = estimate_message(estimate)
    assert stage_seconds(message).total_s == pytest.approx(estimate.seconds.total_s, abs=1e-6)
    assert seconds_of(message.total) == pytest.approx(estimate.seconds.total_s)


@pytest.mark.parametrize("value", [inf, -inf, nan, -1.0, 0.0])
def test_what_is_no_duration_is_none(value: float) -> None:
    assert duration_of(value).ToNanoseconds() == 0
