"""The denoiser: best rank first at step boundaries, cancelled before the next step, durable before it answers."""

import asyncio
from collections.abc import Iterable

import grpc
import pytest

from tests.integration.stages.stage_calls import DenoiseCall, StageCalls, job
from triptych.errors import Reason, from_rpc_error
from triptych.exchange import Exchange
from triptych.v1.denoiser_service_pb2 import DenoiseRequest
from triptych.v1.job_pb2 import JobSpec

LONG = {"step_count": 400}


async def test_events_come_in_order_and_latents_are_durable(calls: StageCalls, exchange: Exchange) -> None:
    spec = job("sdxl", output_count=2)
    kinds, fractions = [], []
    async for event in calls.denoise(spec, await calls.encode(spec)):
        kinds.append(event.WhichOneof("event"))
        if event.HasField("progress"):
            fractions.append(event.progress.fraction)
        if event.HasField("latents"):
            assert await exchange.exists(event.latents.data)
        if event.HasField("finished"):
            assert event.finished.device_time.ToNanoseconds() > 0
    assert kinds[0] == "started"
    assert kinds[-1] == "finished"
    assert kinds.count("progress") == 6
    assert kinds.count("latents") == 2
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0


async def test_finished_outputs_are_not_made_again(calls: StageCalls) -> None:
    spec = job("sdxl", output_count=3)
    encoded = await calls.encode(spec)
    request = DenoiseRequest(call=calls.call(), spec=spec, conditioning=encoded.conditioning, finished_outputs=[0, 2])
    made = [event.latents.output_index async for event in calls.denoiser.Denoise(request) if event.HasField("latents")]
    assert made == [1]


async def test_a_better_ranked_job_runs_between_two_steps_of_a_longer_one(calls: StageCalls) -> None:
    long, short = job("sdxl", **LONG), job("sdxl")
    encoded = await calls.encode(long)
    long_events = calls.denoise(long, encoded, rank=9.0)
    before = await steps(long_events, 2)
    assert [event.WhichOneof("event") async for event in calls.denoise(short, encoded, rank=1.0)][-1] == "finished"
    rest = await steps(long_events, LONG["step_count"] - before)
    assert before + rest == LONG["step_count"]


async def test_a_worse_ranked_job_waits(calls: StageCalls) -> None:
    long, other = job("sdxl", step_count=60), job("sdxl")
    encoded = await calls.encode(long)
    order: list[str] = []

    async def run(name: str, spec: JobSpec, rank: float) -> None:
        async for event in calls.denoise(spec, encoded, rank):
            kind = event.WhichOneof("event")
            order.extend([f"{name} {kind}"] if kind in ("started", "finished") else [])

    first = asyncio.create_task(run("long", long, 1.0))
    while not order:
        await asyncio.wait([first], timeout=0.01)
    await asyncio.gather(first, run("other", other, 2.0))
    assert order == ["long started", "long finished", "other started", "other finished"]


async def test_cancelling_stops_before_the_next_step_and_frees_the_slot(calls: StageCalls) -> None:
    long = job("sdxl", **LONG)
    encoded = await calls.encode(long)
    for _ in range(5):  # more often than there are slots
        events = calls.denoise(long, encoded)
        await steps(events, 2)
        events.cancel()
    # The device is free: another job runs at once, although it ranks worse.
    after = [event async for event in calls.denoise(job("sdxl"), encoded, rank=99.0)]
    assert after[-1].HasField("finished")


async def test_more_than_its_slots_are_refused(calls: StageCalls) -> None:
    long = job("sdxl", **LONG)
    encoded = await calls.encode(long)
    # Each ranks better than the one before, so each is known to run before the next is sent.
    running = []
    for rank in (3.0, 2.0, 1.0):
        running.append(calls.denoise(long, encoded, rank))
        await steps(running[-1], 1)
    refused = await first_refusal(calls.denoise(long, encoded, rank=50.0) for _ in range(3))
    assert refused is Reason.NO_SLOT
    for events in running:
        events.cancel()


async def test_a_call_of_an_older_term_is_refused_and_what_it_started_is_stopped(calls: StageCalls) -> None:
    long = job("sdxl", **LONG)
    encoded = await calls.encode(long)
    old = calls.denoise(long, encoded)
    await steps(old, 1)
    newer = DenoiseRequest(call=calls.call(epoch=calls.epoch + 1), spec=job("sdxl"), conditioning=encoded.conditioning)
    assert [event async for event in calls.denoiser.Denoise(newer)][-1].HasField("finished")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await steps(old, LONG["step_count"])
    assert from_rpc_error(caught.value).reason is Reason.STALE_EPOCH
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in calls.denoise(job("sdxl"), encoded):
            pass
    assert from_rpc_error(caught.value).reason is Reason.STALE_EPOCH


async def test_a_term_that_no_router_had_is_forgotten(calls: StageCalls, exchange: Exchange) -> None:
    encoded = await calls.encode(job("sdxl"))
    bucket = await exchange.bucket("leader")
    newest = await bucket.put("router", b"a router, some terms ago")
    claimed = DenoiseRequest(call=calls.call(epoch=2**63), spec=job("sdxl"), conditioning=encoded.conditioning)
    assert [event async for event in calls.denoiser.Denoise(claimed)][-1].HasField("finished")
    # A router's own try again, after its death or its giving up.
    request = DenoiseRequest(call=calls.call(epoch=newest), spec=job("sdxl"), conditioning=encoded.conditioning)
    reasons = []
    async with asyncio.timeout(20):
        while (reason := await refusal(calls.denoiser.Denoise(request))) is not None:
            reasons.append(reason)
    assert set(reasons) == {Reason.STALE_EPOCH}


async def refusal(events: DenoiseCall) -> Reason | None:
    """Why a call was refused; None if it ran to its end."""
    try:
        assert [event async for event in events][-1].HasField("finished")
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error).reason
    return None


async def steps(events: DenoiseCall, count: int) -> int:
    """Read until so many steps are done; the number."""
    done = 0
    while done < count:
        done += (await events.read()).HasField("progress")
    return done


async def first_refusal(attempts: Iterable[DenoiseCall]) -> Reason:
    for events in attempts:
        try:
            await events.read()
        except grpc.aio.AioRpcError as error:
            return from_rpc_error(error).reason
    raise AssertionError("none was refused")
