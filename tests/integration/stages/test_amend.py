"""A real denoiser told to change what it runs: its rank, its steps, and an end at once."""

import asyncio

import grpc
import numpy as np
import pytest

from tests.integration.stages.denoise_run import FINISH, Run
from tests.integration.stages.stage_calls import StageCalls, bits, job
from triptych.errors import Reason, from_rpc_error
from triptych.exchange import Exchange, TensorData
from triptych.v1.encoder_service_pb2 import EncodeResponse
from triptych.v1.job_pb2 import Amendment, Attachment

LONG = 400


@pytest.mark.parametrize("model", ["sdxl", "flux", "wan"])
async def test_finish_now_and_fewer_and_more(calls: StageCalls, exchange: Exchange, model: str) -> None:
    spec = job(model, step_count=LONG, frame_count=9 if model == "wan" else 1)
    encoded = await calls.encode(spec)
    run = Run(calls, spec, encoded)
    await run.until(0, 2)
    await run.amend(Amendment(step_count=LONG + 50))
    await run.until(0, run.steps[-1][1] + 3)
    assert run.steps[-1][2] == LONG + 50
    count = await run.amend(FINISH)
    [latents] = await run.end()
    # The step under way when the change came was the last; one more if it was done by then.
    assert run.steps[-1][1] == run.steps[-1][2]
    assert count <= run.steps[-1][1] <= count + 1
    value = (await exchange.get(latents.data))["latents"].value
    assert isinstance(value, TensorData)
    assert np.isfinite(np.frombuffer(value.data, np.float32)).all()
    assert [event async for event in calls.denoise(spec=job(model), encoded=encoded)][-1].HasField("finished")


async def test_outputs_to_come_run_as_many_steps(calls: StageCalls, exchange: Exchange) -> None:
    spec = job("sdxl", step_count=LONG, output_count=3)
    encoded = await calls.encode(spec)
    run = Run(calls, spec, encoded)
    await run.until(0, 3)
    count = await run.amend(FINISH)
    latents = await run.end()
    assert [index for index, step, of in run.steps if step == of] == [0, 1, 2]
    assert {of for index, _, of in run.steps if index} == {count}
    stock = await Run(calls, job("sdxl", step_count=count, output_count=3), encoded).end()
    for index in (1, 2):
        assert await bits(exchange, latents[index]) == await bits(exchange, stock[index])


async def test_a_worse_rank_lets_others_in(calls: StageCalls) -> None:
    spec = job("sdxl", step_count=LONG)
    encoded = await calls.encode(spec)
    run = Run(calls, spec, encoded)
    await run.until(0, 2)
    other = asyncio.create_task(_end(calls, encoded))
    await run.until(0, 10)
    assert not other.done()
    await run.amend(None, rank=9.0)
    await other
    assert len(run.steps) < LONG
    await run.amend(FINISH)
    await run.end()


async def test_from_a_given_image_only_the_last_part_of_the_steps_counts(
    calls: StageCalls, picture: Attachment
) -> None:
    spec = job("sdxl", step_count=100, attachments=[picture])
    spec.extra.update({"strength": 0.5})
    encoded = await calls.encode(spec)
    run = Run(calls, spec, encoded)
    await run.until(0, 2)
    assert run.steps[-1][2] == 50
    await run.amend(Amendment(step_count=120))
    await run.end()
    assert run.steps[-1] == (0, 60, 60)


async def test_latents_are_refined(calls: StageCalls, exchange: Exchange) -> None:
    spec = job("flux", step_count=4)
    encoded = await calls.encode(spec)
    done = await Run(calls, spec, encoded).end()
    more = job("flux", step_count=10)
    runs = [Run(calls, more, encoded, refined_latents=done, refined_step_count=4) for _ in range(2)]
    first, second = [(await run.end())[0] for run in runs]
    assert [step for _, step, _ in runs[0].steps] == list(range(4, 11))
    assert await bits(exchange, first) == await bits(exchange, second)
    # Latents of the new run can be decoded, and refined again.
    assert (await calls.decode(more, encoded, first)).HasField("output")
    await exchange.delete(done[0].data)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await Run(calls, more, encoded, refined_latents=done, refined_step_count=4).end()
    assert from_rpc_error(caught.value).reason is Reason.LATENTS_GONE


async def test_what_is_refused(calls: StageCalls) -> None:
    spec = job("sdxl", step_count=LONG)
    encoded = await calls.encode(spec)
    run = Run(calls, spec, encoded)
    await run.until(0, 1)
    assert await reason_of(run.amend(Amendment())) is Reason.INVALID_FIELD
    assert await reason_of(run.amend(Amendment(step_count=5000))) is Reason.INVALID_FIELD
    run.call.epoch -= 1
    assert await reason_of(run.amend(FINISH)) is Reason.STALE_EPOCH
    run.call.epoch += 1
    run.call.attempt = 2
    assert await reason_of(run.amend(FINISH)) is Reason.JOB_UNKNOWN
    run.call.attempt = 1
    await run.amend(FINISH)
    await run.end()
    assert await reason_of(run.amend(FINISH)) is Reason.JOB_UNKNOWN


async def _end(calls: StageCalls, encoded: EncodeResponse) -> None:
    async for _ in calls.denoise(job("sdxl"), encoded, rank=7.0):
        pass


async def reason_of(change: object) -> Reason:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await change  # type: ignore[misc]
    return from_rpc_error(caught.value).reason
