"""A text that is too long for a tokenizer is cut, and the encoder says so: what it counted, and what it foretells."""

import asyncio
from typing import Any

import pytest

from tests.integration.stages.conftest import Workers, all_ready
from tests.integration.stages.stage_calls import StageCalls, job
from triptych.exchange import Exchange
from triptych.rpc import open_channel
from triptych.v1.encoder_service_pb2 import CountTokensRequest, EncodeRequest
from triptych.v1.encoder_service_pb2_grpc import EncoderServiceStub
from triptych.v1.job_pb2 import JobSpec, TextReading

# The tiny tokenizers take each letter for a token, and CLIP adds two.
LONG, LONGER, SHORT = "r" * 90, "b" * 600, "g" * 20

Readings = set[tuple[str, str, int, int]]
CLIP_OF_LONG = {("prompt", "tokenizer", 92, 77), ("prompt", "tokenizer_2", 92, 77)}
CASES: list[tuple[str, dict[str, Any], Readings]] = [
    ("sdxl", {"prompt": LONG}, CLIP_OF_LONG),
    (
        "sdxl",
        {"prompt": SHORT, "negative_prompt": LONG},
        {
            *(("prompt", name, 22, 77) for name in ("tokenizer", "tokenizer_2")),
            *(("negative_prompt", name, 92, 77) for name in ("tokenizer", "tokenizer_2")),
        },
    ),
    (
        "sdxl",
        {"prompt": SHORT, "extra": {"prompt_2": LONG}},
        {("prompt", "tokenizer", 22, 77), ("extra.prompt_2", "tokenizer_2", 92, 77)},
    ),
    # Without guidance nobody reads it.
    (
        "sdxl",
        {"prompt": SHORT, "negative_prompt": LONG, "guidance": 1.0},
        {("prompt", "tokenizer", 22, 77), ("prompt", "tokenizer_2", 22, 77)},
    ),
    ("flux", {"prompt": LONG}, {("prompt", "tokenizer", 92, 77), ("prompt", "tokenizer_2", 92, 512)}),
    (
        "flux",
        {"prompt": LONG, "extra": {"max_sequence_length": 64}},
        {("prompt", "tokenizer", 92, 77), ("prompt", "tokenizer_2", 92, 64)},
    ),
    ("sd3", {"prompt": LONG}, {*CLIP_OF_LONG, ("prompt", "tokenizer_3", 92, 256)}),
    (
        "sd3",
        {"prompt": SHORT, "extra": {"prompt_3": LONGER}},
        {
            *(("prompt", name, 22, 77) for name in ("tokenizer", "tokenizer_2")),
            ("extra.prompt_3", "tokenizer_3", 602, 256),
        },
    ),
    ("wan", {"prompt": LONGER, "frame_count": 9}, {("prompt", "tokenizer", 602, 512)}),
]


def read(texts: list[TextReading]) -> Readings:
    return {(text.field, text.tokenizer, text.token_count, text.token_limit) for text in texts}


async def encoded(calls: StageCalls, spec: JobSpec) -> Readings:
    response = await calls.encode(spec)
    return read([text for entry in response.conditioning for text in entry.texts])


@pytest.mark.parametrize(("model", "fields", "want"), CASES)
async def test_what_was_read(calls: StageCalls, model: str, fields: dict[str, Any], want: Readings) -> None:
    assert want <= await encoded(calls, job(model, **fields))
    # And again, from the cache.
    assert want <= await encoded(calls, job(model, **fields))


@pytest.mark.parametrize(("model", "fields", "want"), CASES)
async def test_it_is_foretold(calls: StageCalls, model: str, fields: dict[str, Any], want: Readings) -> None:
    response = await calls.encoder.CountTokens(CountTokensRequest(spec=job(model, **fields)))
    assert read(list(response.texts)) == want


async def test_a_text_that_the_model_cleans_is_known_again(calls: StageCalls) -> None:
    texts = {"prompt": "\u201cr\u201d  &amp;amp; " * 90, "negative_prompt": "b " * 300}
    found = await encoded(calls, job("wan", frame_count=9, **texts))
    assert {(field, count > limit) for field, _, count, limit in found} == {("prompt", True), ("negative_prompt", True)}


async def test_texts_that_are_encoded_together_are_told_apart(calls: StageCalls) -> None:
    """The first keeps the device busy while the others gather."""
    lengths = range(70, 86)
    specs = [job("sdxl", prompt="w" * length, reproducible=False) for length in lengths]
    found = await asyncio.gather(*(encoded(calls, spec) for spec in specs))
    for length, readings in zip(lengths, found, strict=True):
        assert readings == {("prompt", name, length + 2, 77) for name in ("tokenizer", "tokenizer_2")}


async def test_a_replica_that_finds_it_in_the_cache_tells_too(
    calls: StageCalls, workers: Workers, exchange: Exchange
) -> None:
    spec = job("sdxl", prompt="q" * 80)
    await calls.encode(spec)
    replica = workers.another("encoder", "encoder-7", "--models=sdxl")
    replica.start()
    await all_ready(workers.nats.url, [replica])
    async with open_channel(replica.address) as channel:
        response = await EncoderServiceStub(channel).Encode(EncodeRequest(call=calls.call(), spec=spec))
    replica.kill()
    assert response.cached
    assert read([text for entry in response.conditioning for text in entry.texts]) == {
        ("prompt", name, 82, 77) for name in ("tokenizer", "tokenizer_2")
    }


async def test_the_log_has_counts_and_no_text(calls: StageCalls, workers: Workers) -> None:
    words = "zebra quartz " * 20
    await calls.encode(job("sdxl", prompt=words, negative_prompt=words))
    await calls.encode(job("flux", prompt=words))
    log = workers.processes["encoder"].log.read_text()
    assert "text_cut" in log
    assert '"token_count": 222, "token_limit": 77' in log
    assert not {word for word in ("zebra", "quartz", "truncated") if word in log}
