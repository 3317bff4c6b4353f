"""The encoder: nothing is encoded twice, and nothing wrong comes out of the cache."""

import asyncio

import grpc
import pytest

from tests.integration.stages.conftest import Workers, all_ready
from tests.integration.stages.stage_calls import StageCalls, job
from triptych.errors import Reason, from_rpc_error
from triptych.exchange import Exchange
from triptych.rpc import open_channel
from triptych.v1.encoder_service_pb2 import EncodeRequest, EncodeResponse
from triptych.v1.encoder_service_pb2_grpc import EncoderServiceStub
from triptych.v1.job_pb2 import Attachment, JobSpec


async def test_a_prompt_is_encoded_once(calls: StageCalls) -> None:
    first = await calls.encode(job("sdxl", prompt="a green star"))
    again = await calls.encode(job("sdxl", prompt="a green star", seed=99, step_count=50, guidance=7.0))
    assert (first.cached, again.cached) == (False, True)
    assert again.conditioning == first.conditioning
    assert again.device_time.ToNanoseconds() == 0


@pytest.mark.parametrize(
    "other",
    [
        {"prompt": "a green star."},
        {"negative_prompt": "blue"},
        {"guidance": 1.0},
        {"extra": {"clip_skip": 1}},
        {"model": "flux"},
    ],
    ids=lambda other: next(iter(other)),
)
async def test_whatever_shapes_the_result_is_in_the_key(calls: StageCalls, other: dict[str, object]) -> None:
    await calls.encode(job("sdxl", prompt="a green star"))
    changed = await calls.encode(job(**{"model": "sdxl", "prompt": "a green star", **other}))
    repeated = await calls.encode(job(**{"model": "sdxl", "prompt": "a green star", **other}))
    assert (changed.cached, repeated.cached) == (False, True)


async def test_equal_prompts_at_once_are_computed_once(calls: StageCalls) -> None:
    responses = await asyncio.gather(*(calls.encode(job("sd3", prompt="at once")) for _ in range(8)))
    assert sorted(response.cached for response in responses) == [False] + [True] * 7
    assert len({response.conditioning[0].data.bundle_id for response in responses}) == 1


async def test_noise_is_keyed_by_seed_and_output(calls: StageCalls, picture: Attachment) -> None:
    spec = job("sdxl", prompt="noisy", output_count=2, attachments=[picture])
    first = await calls.encode(spec)
    assert [entry.block for entry in first.conditioning] == ["text_encoder", "vae_encoder", "vae_encoder"]
    spec.seed += 1
    # Output 0 of the next seed is output 1 of this one; output 1 is new.
    second = await calls.encode(spec)
    assert not second.cached
    assert second.conditioning[1].key == first.conditioning[2].key
    assert second.conditioning[2].key not in {entry.key for entry in first.conditioning}


async def test_another_replica_and_a_restarted_one_run_no_text_encoder(
    calls: StageCalls, workers: Workers, exchange: Exchange
) -> None:
    spec = job("sdxl", prompt="shared between replicas")
    first = await calls.encode(spec)
    replica = workers.another("encoder", "encoder-2", "--models=sdxl")
    for _ in range(2):
        replica.start()
        await all_ready(workers.nats.url, [replica])
        beat = await replica.ready(exchange)
        assert beat.cache.miss_count == 0
        response = await encode_at(replica.address, calls, spec)
        assert response.cached
        assert response.conditioning == first.conditioning
        replica.kill()


async def test_what_has_left_the_exchange_is_made_again(
    calls: StageCalls, workers: Workers, exchange: Exchange
) -> None:
    spec = job("sdxl", prompt="soon gone")
    first = await calls.encode(spec)
    await exchange.delete(first.conditioning[0].data)
    # From the memory of this encoder: no block runs.
    again = await calls.encode(spec)
    assert again.cached
    assert await exchange.exists(again.conditioning[0].data)
    await exchange.delete(again.conditioning[0].data)
    forgetful = workers.another("encoder", "encoder-3", "--models=sdxl", "--cache_bytes=0")
    forgetful.start()
    await all_ready(workers.nats.url, [forgetful])
    made = await encode_at(forgetful.address, calls, spec)
    assert forgetful.terminate() == 0
    assert not made.cached
    assert await exchange.exists(made.conditioning[0].data)


async def test_a_job_without_a_seed_may_be_batched_and_one_with_a_seed_never_uses_that(
    calls: StageCalls, exchange: Exchange
) -> None:
    prompts = [f"batched {index}" for index in range(12)]
    loose = await asyncio.gather(*(calls.encode(job("sdxl", prompt=each, reproducible=False)) for each in prompts))
    assert not any(response.cached for response in loose)
    exact = [await calls.encode(job("sdxl", prompt=each)) for each in prompts]
    loose_keys = {response.conditioning[0].key for response in loose}
    assert all(key.endswith("-batched") for key in loose_keys)
    assert not loose_keys & {response.conditioning[0].key for response in exact}
    for one, other in zip(loose, exact, strict=True):
        got = await exchange.get(one.conditioning[0].data)
        want = await exchange.get(other.conditioning[0].data)
        assert {name: entry.value.shape for name, entry in got.items()} == {
            name: entry.value.shape for name, entry in want.items()
        }
    # The other way round: a loose job is glad of an exact entry.
    assert (await calls.encode(job("sdxl", prompt="batched 0", reproducible=False))).cached


async def test_a_model_that_lacks_the_part_says_so_and_the_encoder_lives_on(
    calls: StageCalls, picture: Attachment
) -> None:
    broken = Attachment(role=picture.role, media_type="image/png", data=picture.data[:100])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await calls.encode(job("sdxl", attachments=[broken]))
    error = from_rpc_error(caught.value)
    assert error.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in error.violations] == ["spec.attachments[0].data"]
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await calls.encode(job("nobody"))
    assert from_rpc_error(caught.value).reason is Reason.MODEL_UNKNOWN
    assert (await calls.encode(job("sdxl", prompt="still here"))).conditioning


async def test_a_cache_of_each_tenants_own(calls: StageCalls, workers: Workers) -> None:
    replica = workers.another("encoder", "encoder-3", "--models=sdxl", "--cache_scope=tenant")
    replica.start()
    await all_ready(workers.nats.url, [replica])
    spec = job("sdxl", prompt="whose is it?")
    found = [(await encode_at(replica.address, calls, spec, tenant)).cached for tenant in ("a", "a", "b", "a")]
    assert found == [False, True, False, True]
    replica.kill()


async def encode_at(address: str, calls: StageCalls, spec: JobSpec, tenant: str = "") -> EncodeResponse:
    call = calls.call()
    call.tenant = tenant
    async with open_channel(address) as channel:
        response: EncodeResponse = await EncoderServiceStub(channel).Encode(EncodeRequest(call=call, spec=spec))
        return response
