"""Specs become shapes, shapes become seconds."""

from math import inf, nan
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict

from services.router.core.job import Stage
from services.router.pricing import Pricing, duration, estimate_message, seconds, stage_seconds
from tests.unit.router.profiles import PROFILE
from triptych.catalog import Catalog, CatalogModel, Cost
from triptych.v1.job_pb2 import JobSpec
from triptych.v1.worker_pb2 import DeclaredInput, ModelProfile

COST = Cost(tflop_per_ktoken=2.0, effective_tflops=100.0, forward_s=0.01, encode_s=0.5, decode_s_per_megapixel=2.0)


@pytest.fixture
def pricing() -> Pricing:
    made = Pricing(Catalog({"model": CatalogModel("somewhere", cost=COST)}, Path()))
    made.learn(PROFILE)
    return made


def spec(**fields: object) -> JobSpec:
    given = {"model": "model", "width": 512, "height": 512, "step_count": 10, "guidance": 4.0, "output_count": 1}
    return ParseDict({**given, **fields}, JobSpec())


def test_the_law(pricing: Pricing) -> None:
    estimate = pricing.price(spec())
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
    one, film = pricing.price(spec()), pricing.price(spec(frame_count=17))
    assert film.token_count == one.token_count * 5
    assert film.seconds.decode_s == pytest.approx(one.seconds.decode_s * 17)
    assert pricing.price(spec(output_count=3)).seconds.denoise_s == pytest.approx(one.seconds.denoise_s * 3)


def test_a_given_image_saves_steps(pricing: Pricing) -> None:
    part = spec(extra={"strength": 0.5}, attachments=[{"role": 1}])
    assert pricing.shape(part).step_count == 5
    assert pricing.shape(spec(extra={"strength": 0.5})).step_count == 10


def test_measurements_correct_the_prior(pricing: Pricing) -> None:
    before = pricing.price(spec()).seconds
    for _ in range(20):
        pricing.observe(spec(output_count=2), Stage.DENOISE, before.denoise_s * 3, output_count=1)
    after = pricing.price(spec()).seconds
    assert after.denoise_s == pytest.approx(before.denoise_s * 3, rel=0.1)
    assert after.decode_s == before.decode_s


def test_what_teaches_nothing(pricing: Pricing) -> None:
    before = pricing.price(spec())
    pricing.observe(spec(), Stage.DENOISE, 0.0, 1)
    pricing.observe(spec(), Stage.DENOISE, 5.0, 0)
    pricing.observe(spec(model="other"), Stage.DENOISE, 5.0, 1)
    pricing.learn(ModelProfile(name="not in the catalog"))
    assert pricing.price(spec()) == before


def test_a_model_nobody_told_of_has_no_price(pricing: Pricing) -> None:
    with pytest.raises(KeyError):
        pricing.price(spec(model="other"))


def test_messages_there_and_back(pricing: Pricing) -> None:
    estimate = pricing.price(spec())
    message = estimate_message(estimate)
    assert stage_seconds(message).total_s == pytest.approx(estimate.seconds.total_s, abs=1e-6)
    assert seconds(message.total) == pytest.approx(estimate.seconds.total_s)


@pytest.mark.parametrize("value", [inf, -inf, nan, -1.0, 0.0])
def test_what_is_no_duration_is_none(value: float) -> None:
    assert duration(value).ToNanoseconds() == 0
