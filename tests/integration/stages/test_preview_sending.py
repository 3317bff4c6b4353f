"""A job's previews on their way: one of an output at a time, dropped when late, never larger than a message."""

import asyncio
import secrets
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from services.denoiser.preview_copy import MAX_LATENT_BYTES, SMALL_BYTES, HostCopy, shrunk
from services.denoiser.previews import OutputPreviews, Previews
from services.stage.tensors import from_bundle
from triptych.exchange import Exchange, unpack
from triptych.previews import QUEUE_GROUP, latents_subject
from triptych.v1.denoiser_service_pb2 import DenoiseRequest
from triptych.v1.job_pb2 import JobSpec, PreviewPolicy
from triptych.v1.preview_pb2 import PreviewAnswer, PreviewLatents

CLEAN = torch.randn(1, 4, 6, 6)


class Decoder:
    """Takes requests for a model of its own, once it is started, and answers each when it is told to."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange
        self.fingerprint = secrets.token_hex(16)
        self.requests: asyncio.Queue[Any] = asyncio.Queue()

    async def start(self) -> None:
        subject = latents_subject(self.fingerprint)
        await self.exchange.control.subscribe(subject, QUEUE_GROUP, cb=self.requests.put)
        # The client's PING overtakes what it has not written yet: only the second one follows the subscription.
        for _ in range(2):
            await self.exchange.control.flush()

    async def answer(self, refusal: str = "") -> PreviewLatents:
        message = await asyncio.wait_for(self.requests.get(), 10)
        await message.respond(PreviewAnswer(refusal=refusal).SerializeToString())
        return PreviewLatents.FromString(message.data)


@pytest.fixture
def decoder(exchange: Exchange) -> Decoder:
    return Decoder(exchange)


def previews(decoder: Decoder, time_limit_s: float = 10.0, spacing_s: float = 0.0, **policy: Any) -> Previews:
    spec = JobSpec(model="shapes", prompt="a secret", width=96, preview=PreviewPolicy(**policy or {"every_steps": 2}))
    spec.extra.update({"prompt_2": "a secret", "texts": ["a secret"], "strength": 0.5})
    model: Any = SimpleNamespace(checkpoint=SimpleNamespace(fingerprint=decoder.fingerprint))
    return Previews(decoder.exchange, model, DenoiseRequest(spec=spec), time_limit_s, spacing_s)


async def settled(taker: OutputPreviews) -> None:
    """Wait until nothing is on its way."""
    await asyncio.sleep(0)  # the hand-over from the device thread
    assert taker.sending is not None
    await asyncio.wait([taker.sending], timeout=10)


async def test_every_second_step_with_what_a_decoder_needs_and_no_more(decoder: Decoder) -> None:
    await decoder.start()
    made = previews(decoder)
    taker = made.of(1)
    assert [step for step in range(1, 4) if taker.due(step, 9)] == [2]
    taker.take(2, 9, CLEAN, lambda latents: latents + 1)
    request = await decoder.answer()
    await settled(taker)
    assert (request.output_index, request.step, request.step_count, request.spec.width) == (1, 2, 9, 96)
    assert b"a secret" not in request.spec.SerializeToString()
    assert dict(request.spec.extra) == {"strength": 0.5}
    latents, _ = from_bundle(unpack(request.bundle), torch.device("cpu"))["latents"]
    assert torch.equal(latents, CLEAN.half() + 1)
    assert (made.made_count, made.dropped_count) == (1, 0)


async def test_what_is_due_while_one_is_on_its_way_is_dropped(decoder: Decoder) -> None:
    await decoder.start()
    made = previews(decoder, every_steps=1)
    taker = made.of(0)
    assert taker.due(1, 9)
    taker.take(1, 9, CLEAN, lambda latents: latents)
    assert not taker.due(2, 9)
    assert not taker.due(3, 9)
    assert (await decoder.answer()).step == 1
    await settled(taker)
    assert taker.due(4, 9)
    assert (made.made_count, made.dropped_count) == (1, 2)


async def test_a_decoder_that_is_not_there_refuses_or_is_silent_costs_that_preview_alone(decoder: Decoder) -> None:
    made = previews(decoder, time_limit_s=0.3, every_steps=1)
    taker = made.of(0)

    async def send(step: int) -> None:
        assert taker.due(step, 9)
        taker.take(step, 9, CLEAN, lambda latents: latents)

    await send(1)
    await settled(taker)  # nobody is there
    await decoder.start()
    await send(2)
    await decoder.answer("too many previews wait")
    await settled(taker)
    await send(3)
    await settled(taker)  # it never answers
    assert taker.due(4, 9)
    assert (made.made_count, made.dropped_count) == (0, 3)


async def test_a_sampler_that_does_not_tell_is_no_failure(decoder: Decoder) -> None:
    made = previews(decoder, every_steps=1)
    taker = made.of(0)
    for step in (1, 2):
        assert taker.due(step, 9)
        taker.take(step, 9, None, lambda latents: latents)
    assert made.dropped_count == 2


async def test_what_comes_too_soon_is_dropped(decoder: Decoder) -> None:
    await decoder.start()
    made = previews(decoder, spacing_s=3600.0, every_steps=1)
    taker = made.of(0)
    assert taker.due(1, 9)
    taker.take(1, 9, CLEAN, lambda latents: latents)
    await decoder.answer()
    await settled(taker)
    assert not any(taker.due(step, 9) for step in range(2, 9))
    assert (made.made_count, made.dropped_count) == (1, 7)


async def test_outputs_that_are_made_together_do_not_take_each_others_turns(decoder: Decoder) -> None:
    await decoder.start()
    made = previews(decoder, spacing_s=3600.0, every_steps=1)
    takers = [made.of(index) for index in range(3)]
    for taker in takers:
        assert taker.due(1, 9)
        taker.take(1, 9, CLEAN, lambda latents: latents)
    assert [(await decoder.answer()).output_index for _ in takers] == [0, 1, 2]
    for taker in takers:
        await settled(taker)
    assert (made.made_count, made.dropped_count) == (3, 0)


async def test_large_latents_are_worked_on_beside_the_event_loop(decoder: Decoder) -> None:
    await decoder.start()
    taker = previews(decoder, every_steps=1).of(0)
    loop_thread, workers = threading.get_ident(), []

    def finish(latents: torch.Tensor) -> torch.Tensor:
        workers.append(threading.get_ident())
        return latents

    for step, clean in enumerate((CLEAN, torch.zeros(1, 4, SMALL_BYTES // 8 + 1, 1)), start=1):
        assert taker.due(step, 9)
        taker.take(step, 9, clean, finish)
        await decoder.answer()
        await settled(taker)
    assert [worker == loop_thread for worker in workers] == [True, False]


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
    copy = HostCopy(original)
    original.zero_()
    assert torch.equal(copy.wait(), torch.ones(3, dtype=torch.float16))
