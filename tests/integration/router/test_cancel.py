"""Cancelling a job in every state: what ran of it stops, and nothing follows the end."""

import asyncio

import pytest

from tests.integration.router.bench import Bench, kinds, spec
from triptych.errors import Reason, TriptychError
from triptych.rpc import open_channel
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import JOB_STATE_CANCELLED, JOB_STATE_SUCCEEDED
from triptych.v1.router_service_pb2_grpc import RouterServiceStub


async def check_over(bench: Bench, job_id: str) -> None:
    """The job is cancelled for good, and the suite still works."""
    events = await bench.events(job_id)
    assert kinds(events)[-1] == "cancelled"
    for peer in bench.peers:
        await peer.gate.open()
    other = await bench.submit(spec(prompt="another"))
    assert kinds(await bench.events(other.job_id))[-1] == "succeeded"
    assert await bench.events(job_id) == events
    assert (await bench.job(job_id)).state == JOB_STATE_CANCELLED


async def test_while_it_queues(bench: Bench) -> None:
    bench.denoiser.gate.close()
    running = await bench.submit(spec(prompt="in front"))
    await bench.denoiser.gate.reached()
    job = await bench.submit()
    await bench.until(job.job_id, "encoded")
    assert (await bench.cancel(job.job_id)).state == JOB_STATE_CANCELLED
    await check_over(bench, job.job_id)
    assert not bench.denoiser.calls_of(job.job_id)
    assert kinds(await bench.events(running.job_id))[-1] == "succeeded"
    assert len(bench.denoiser.calls_of(running.job_id)) == 1


async def test_while_it_is_encoded(bench: Bench) -> None:
    bench.encoder.gate.close()
    job = await bench.submit()
    await bench.encoder.gate.reached()
    assert (await bench.cancel(job.job_id)).state == JOB_STATE_CANCELLED
    await bench.encoder.cancelled(job.job_id)
    await check_over(bench, job.job_id)
    assert not bench.denoiser.calls_of(job.job_id)


async def test_while_it_is_denoised(bench: Bench) -> None:
    await bench.denoiser.gate.open(2)
    job = await bench.submit()
    await bench.denoiser.gate.reached(3)
    assert (await bench.cancel(job.job_id)).state == JOB_STATE_CANCELLED
    await bench.denoiser.cancelled(job.job_id)
    await check_over(bench, job.job_id)
    assert bench.denoiser.steps[job.job_id] == 2
    assert not bench.decoder.calls_of(job.job_id)


async def test_while_it_is_decoded(bench: Bench) -> None:
    bench.decoder.gate.close()
    job = await bench.submit()
    await bench.decoder.gate.reached()
    assert (await bench.cancel(job.job_id)).state == JOB_STATE_CANCELLED
    await bench.decoder.cancelled(job.job_id)
    await check_over(bench, job.job_id)
    with pytest.raises(TriptychError) as caught:
        await bench.download(job.job_id)
    assert caught.value.reason is Reason.OUTPUT_UNKNOWN


async def test_twice_and_after_the_end_changes_nothing(bench: Bench) -> None:
    bench.encoder.gate.close()
    job = await bench.submit()
    first, second = await asyncio.gather(bench.cancel(job.job_id), bench.cancel(job.job_id))
    assert first == second
    await bench.encoder.gate.open()
    done = await bench.submit(spec(prompt="to the end"))
    await bench.events(done.job_id)
    assert (await bench.cancel(done.job_id)).state == JOB_STATE_SUCCEEDED


async def test_one_of_two_running_jobs_leaves_the_other_alone(bench: Bench) -> None:
    bench.denoiser.gate.close()
    kept = await bench.submit(spec(step_count=50))
    await bench.denoiser.gate.reached()
    dropped = await bench.submit()  # shorter: it is let in beside the other
    await bench.denoiser.gate.reached(2)
    await bench.cancel(dropped.job_id)
    await bench.denoiser.cancelled(dropped.job_id)
    await bench.denoiser.gate.open()
    assert kinds(await bench.events(kept.job_id))[-1] == "succeeded"
    assert len(bench.denoiser.calls_of(kept.job_id)) == 1


async def test_a_generation_whose_client_goes(bench: Bench) -> None:
    await bench.denoiser.gate.open(1)
    call = bench.stub.GenerateMedia(pb.GenerateMediaRequest(spec=spec()))
    job_id = (await call.read()).accepted.job_id
    await bench.denoiser.gate.reached(2)
    call.cancel()
    await bench.denoiser.cancelled(job_id)
    await check_over(bench, job_id)
    assert bench.denoiser.steps[job_id] == 1


async def test_a_submitted_job_outlives_its_client(bench: Bench) -> None:
    bench.denoiser.gate.close()
    async with open_channel(bench.address) as channel:
        client = RouterServiceStub(channel)
        job_id = (await client.SubmitJob(pb.SubmitJobRequest(spec=spec()))).job.job_id
        watching = client.WatchJob(pb.WatchJobRequest(job_id=job_id))
        await watching.read()
        await bench.denoiser.gate.reached()
        # It goes, in the middle of a watch.
        watching.cancel()
    await bench.denoiser.gate.open()
    assert kinds(await bench.events(job_id))[-1] == "succeeded"
    assert len(bench.denoiser.calls_of(job_id)) == 1
