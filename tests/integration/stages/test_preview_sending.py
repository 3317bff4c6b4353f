"""A job's previews on their way: one at a time, dropped when late, and never larger than a message."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from services.denoiser.previews import MAX_LATENT_BYTES, Previews, copy_to_host, shrunk
from services.stage.tensors import from_bundle
from triptych.exchange import Exchange, unpack
from triptych.previews import QUEUE_GROUP, latents_subject
from triptych.v1.denoiser_service_pb2 import DenoiseRequest
from triptych.v1.job_pb2 import JobSpec, PreviewPolicy
from triptych.v1.preview_pb2 import PreviewAnswer, PreviewLatents

FINGERPRINT = "f" * 32
CLEAN = torch.randn(1, 4, 6, 6)


class Decoder:
    """Takes requests, and answers each when it is told to."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.requests: asyncio.Queue[Any] = asyncio.Queue()

    async def start(self) -> None:
        subject = latents_subject(FINGERPRINT)
        await self.exchange.control.subscribe(subject, QUEUE_GROUP, cb=self.requests.put)
        await self.exchange.control.flush()

    async def answer(self, refusal: str = "") -> PreviewLatents:
        message = await asyncio.wait_for(self.requests.get(), 10)
        await message.respond(PreviewAnswer(refusal=refusal).SerializeToString())
        return PreviewLatents.FromString(message.data)


def previews(exchange: Exchange, time_limit_s: float = 10.0, **policy: Any) -> Previews:
    spec = JobSpec(model="shapes", prompt="a secret", width=96, preview=PreviewPolicy(**policy or {"every_steps": 2}))
    model: Any = SimpleNamespace(checkpoint=SimpleNamespace(fingerprint=FINGERPRINT))
    return Previews(exchange, model, DenoiseRequest(spec=spec), time_limit_s)


async def settled(made: Previews) -> None:
    """Wait until nothing is on its way."""
    await asyncio.sleep(0)  # the hand-over from the device thread
    assert made.sending is not None
    await asyncio.wait([made.sending], timeout=10)


async def test_every_second_step_with_what_a_decoder_needs_and_no_more(exchange: Exchange) -> None:
    decoder = Decoder(exchange)
    await decoder.start()
    made = previews(exchange)
    taker = made.of(1)
    assert [step for step in range(1, 4) if taker.due(step, 9)] == [2]
    taker.take(2, 9, CLEAN, lambda latents: latents + 1)
    request = await decoder.answer()
    await settled(made)
    assert (request.output_index, request.step, request.step_count, request.spec.width) == (1, 2, 9, 96)
    assert request.spec.prompt == ""
    latents, _ = from_bundle(unpack(request.bundle), torch.device("cpu"))["latents"]
    assert torch.equal(latents, CLEAN.half() + 1)
    assert (made.made_count, made.dropped_count) == (1, 0)


async def test_what_is_due_while_one_is_on_its_way_is_dropped(exchange: Exchange) -> None:
    decoder = Decoder(exchange)
    await decoder.start()
    made = previews(exchange, every_steps=1)
    taker = made.of(0)
    assert taker.due(1, 9)
    taker.take(1, 9, CLEAN, lambda latents: latents)
    assert not taker.due(2, 9)
    assert not taker.due(3, 9)
    assert (await decoder.answer()).step == 1
    await settled(made)
    assert taker.due(4, 9)
    assert (made.made_count, made.dropped_count) == (1, 2)


async def test_a_decoder_that_is_not_there_refuses_or_is_silent_costs_that_preview_alone(exchange: Exchange) -> None:
    made = previews(exchange, time_limit_s=0.3, every_steps=1)
    taker = made.of(0)

    async def send(step: int) -> None:
        assert taker.due(step, 9)
        taker.take(step, 9, CLEAN, lambda latents: latents)

    await send(1)
    await settled(made)  # nobody is there
    decoder = Decoder(exchange)
    await decoder.start()
    await send(2)
    await decoder.answer("too many previews wait")
    await settled(made)
    await send(3)
    await settled(made)  # it never answers
    assert taker.due(4, 9)
    assert (made.made_count, made.dropped_count) == (0, 3)


async def test_a_sampler_that_does_not_tell_is_no_failure(exchange: Exchange) -> None:
    made = previews(exchange, every_steps=1)
    for step in (1, 2):
        assert made.of(0).due(step, 9)
        made.of(0).take(step, 9, None, lambda latents: latents)
    assert made.dropped_count == 2


async def test_by_time_the_first_comes_after_the_first_interval(exchange: Exchange) -> None:
    policy = PreviewPolicy()
    policy.every_time.FromSeconds(3600)
    made = previews(exchange, every_time=policy.every_time)
    assert not any(made.of(0).due(step, 99) for step in range(1, 99))


@pytest.mark.parametrize("shape", [(1, 16, 600, 600), (1, 16, 21, 90, 160), (1, 4, 4096, 512)])
def test_large_latents_are_averaged_until_they_fit(shape: tuple[int, ...]) -> None:
    latents = torch.randn(shape).half()
    small = shrunk(latents)
    assert small.nbytes <= MAX_LATENT_BYTES
    assert small.shape[:-2] == shape[:-2]
    assert small.shape[-2] * shape[-1] == small.shape[-1] * shape[-2]
    assert torch.allclose(small.float().mean(), latents.float().mean(), atol=1e-3)


def test_small_latents_stay_as_they_are_and_packed_ones_too() -> None:
    assert torch.equal(shrunk(CLEAN), CLEAN)
    packed = torch.zeros(1, MAX_LATENT_BYTES // 64 + 1, 32, dtype=torch.float16)
    with pytest.raises(ValueError, match="at most"):
        shrunk(packed)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_copy_does_not_change_with_its_original(dtype: torch.dtype) -> None:
    original = torch.ones(3, dtype=dtype)
    copied = copy_to_host(original)
    original.zero_()
    assert torch.equal(copied(), torch.ones(3, dtype=torch.float16))
