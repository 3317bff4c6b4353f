"""Jobs changed after they were accepted: while they wait, run, decode, and when they are over."""

import asyncio
from dataclasses import replace

import pytest

from services.router.core.config import PoolConfig, SchedulerConfig
from tests.integration.router.bench import CONFIG, Bench, kinds, spec
from tests.integration.router.peers import DenoiserPeer
from triptych.errors import Reason, TriptychError
from triptych.exchange import BundleCorrupt, BundleGone, Exchange
from triptych.v1.job_pb2 import JOB_STATE_QUEUED, JOB_STATE_RUNNING, JOB_STATE_SUCCEEDED, Job, JobRecord
from triptych.v1.tensor_pb2 import DataRef

UNKNOWN = "0" * 26
LATENTS = DataRef(store="latents")


async def running(bench: Bench, steps: int = 2, **fields: object) -> Job:
    """A job that is held after so many of its steps."""
    await bench.denoiser.gate.open(steps)
    job = await bench.submit(spec(**fields))
    await bench.denoiser.gate.reached(steps + 1)
    async for event in bench.watch(job.job_id):
        if event.progress.step >= 1:
            return job
    raise AssertionError("it ended before")


async def reason_of(change: object) -> Reason:
    with pytest.raises(TriptychError) as caught:
        await change  # type: ignore[misc]
    return caught.value.reason


async def test_a_running_job_takes_more_steps(bench: Bench) -> None:
    job = await running(bench)
    amended = await bench.amend(job.job_id, 9)
    assert amended.job_id == job.job_id
    assert amended.state == JOB_STATE_RUNNING
    assert amended.spec.step_count == 9
    assert amended.rank > job.rank
    assert amended.estimate.denoise.ToNanoseconds() == pytest.approx(
        job.estimate.denoise.ToNanoseconds() * 9 / 4, abs=9
    )
    [told] = bench.denoiser.amendments
    assert (told.call.attempt, told.call.rank, told.amendment.step_count) == (1, amended.rank, 9)
    await bench.denoiser.gate.open()
    events = await bench.events(job.job_id)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert kinds(events).count("amended") == 1
    steps = [(event.progress.step, event.progress.step_count) for event in events if event.HasField("progress")]
    assert steps[-1] == (9, 9)
    assert (await bench.job(job.job_id)).spec.step_count == 9


async def test_a_running_job_finishes_now(bench: Bench) -> None:
    job = await running(bench, steps=2, step_count=50)
    amended = await bench.amend(job.job_id)
    # Two are done, and the third is under way.
    assert amended.spec.step_count == 3
    assert amended.rank == job.rank
    await bench.denoiser.gate.open()
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
    assert bench.denoiser.steps[job.job_id] == 3
    assert bench.denoiser.amendments[0].amendment.HasField("finish_now")


async def test_a_queued_job_is_changed_before_it_runs(bench: Bench) -> None:
    bench.encoder.gate.close()
    job = await bench.submit()
    await bench.encoder.gate.reached()
    assert (await bench.amend(job.job_id, 2)).state == JOB_STATE_QUEUED
    await bench.encoder.gate.open()
    await bench.events(job.job_id)
    assert bench.denoiser.amendments == []
    assert bench.denoiser.calls_of(job.job_id)[0].spec.step_count == 2
    assert bench.denoiser.steps[job.job_id] == 2


async def test_a_repeated_request_changes_the_job_once(bench: Bench) -> None:
    job = await running(bench)
    first, second = await asyncio.gather(*(bench.amend(job.job_id, 8, "more") for _ in range(2)))
    assert first == second
    assert len(bench.denoiser.amendments) == 1
    assert await reason_of(bench.amend(job.job_id, 9, "more")) is Reason.REQUEST_ID_REUSED
    await bench.denoiser.gate.open()
    assert kinds(await bench.events(job.job_id)).count("amended") == 1
    # When the job is over too.
    assert (await bench.amend(job.job_id, 8, "more")).state == JOB_STATE_SUCCEEDED


async def test_more_than_the_pool_takes_is_refused_and_the_job_goes_on(bench: Bench) -> None:
    await bench.stop_router()
    pool = PoolConfig(name="all", max_job_s=0.5)
    await bench.start_router(replace(CONFIG, scheduler=SchedulerConfig(pools=(pool,))))
    job = await running(bench)
    assert job.estimate.total.ToNanoseconds() < 0.5e9
    assert await reason_of(bench.amend(job.job_id, 100)) is Reason.TOO_LONG
    assert bench.denoiser.amendments == []
    same = await bench.job(job.job_id)
    assert (same.spec.step_count, same.rank) == (4, job.rank)
    await bench.denoiser.gate.open()
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"


async def test_what_cannot_be_changed(bench: Bench) -> None:
    assert await reason_of(bench.amend(UNKNOWN, 3)) is Reason.JOB_UNKNOWN
    job = await running(bench)
    assert await reason_of(bench.amend(job.job_id, 0)) is Reason.INVALID_FIELD
    assert await reason_of(bench.amend(job.job_id, 100_000)) is Reason.INVALID_FIELD
    assert await reason_of(bench.amend(job.job_id, 3, "not an id")) is Reason.INVALID_FIELD
    await bench.cancel(job.job_id)
    assert await reason_of(bench.amend(job.job_id, 8)) is Reason.JOB_ENDED
    assert await reason_of(bench.amend(job.job_id)) is Reason.JOB_ENDED


async def test_a_finished_job_is_refined_by_a_new_one(bench: Bench) -> None:
    job = await bench.submit()
    events = await bench.events(job.job_id)
    refined = await bench.amend(job.job_id, 10, "refine")
    assert refined.job_id != job.job_id
    assert refined.refines_job_id == job.job_id
    assert refined.spec.step_count == 10
    # Its price is the tail's.
    ratio = refined.estimate.denoise.ToNanoseconds() / job.estimate.denoise.ToNanoseconds()
    assert ratio == pytest.approx(6 / 4, rel=0.2)
    again = await bench.amend(job.job_id, 10, "refine")
    assert again.job_id == refined.job_id
    assert await reason_of(bench.amend(job.job_id, 11, "refine")) is Reason.REQUEST_ID_REUSED
    assert kinds(await bench.events(refined.job_id))[-1] == "succeeded"
    [request] = bench.denoiser.calls_of(refined.job_id)
    assert (len(request.refined_latents), request.refined_step_count) == (1, 4)
    assert bench.denoiser.steps[refined.job_id] == 6
    # The conditioning was there still, and the first job is as it was.
    assert bench.encoder.calls_of(refined.job_id) == []
    assert await bench.events(job.job_id) == events
    # As many steps as it has run: nothing is left to do.
    assert (await bench.amend(job.job_id, 4)).job_id == job.job_id
    assert (await bench.amend(job.job_id)).job_id == job.job_id


async def test_a_refined_job_survives_its_denoiser(bench: Bench) -> None:
    job = await bench.submit()
    await bench.events(job.job_id)
    await bench.denoiser.gate.open(1)
    refined = await bench.amend(job.job_id, 10)
    await bench.denoiser.gate.reached(4 + 2)
    await bench.denoiser.die()

    await bench.add(DenoiserPeer(bench.exchange, "denoiser-1"))
    assert kinds(await bench.events(refined.job_id))[-1] == "succeeded"
    [request] = bench.denoisers[1].calls_of(refined.job_id)
    assert (len(request.refined_latents), request.refined_step_count) == (1, 4)


@pytest.mark.parametrize("error", [BundleGone(LATENTS), BundleCorrupt(LATENTS, "cut short")])
async def test_a_job_whose_refined_latents_are_lost_begins_anew(bench: Bench, error: TriptychError) -> None:
    """A leader that was stopped in the midst of a removal sends its last word when another has accepted the job."""
    job = await bench.submit()
    await bench.events(job.job_id)
    bench.denoiser.errors.append(error)
    refined = await bench.amend(job.job_id, 10)
    assert kinds(await bench.events(refined.job_id))[-1] == "succeeded"
    first, second = bench.denoiser.calls_of(refined.job_id)
    assert (len(first.refined_latents), first.refined_step_count) == (1, 4)
    assert (len(second.refined_latents), second.refined_step_count) == (0, 0)
    assert bench.denoiser.steps[refined.job_id] == 10


async def test_after_their_retention_there_is_nothing_to_refine(bench: Bench, exchange: Exchange) -> None:
    job = await bench.submit()
    await bench.events(job.job_id)
    bucket = await exchange.bucket("jobs")
    record = JobRecord.FromString((await bucket.get(f"job.{job.tenant}.{job.job_id}")).value or b"")
    await exchange.delete(record.latents[0].data)
    assert await reason_of(bench.amend(job.job_id, 10)) is Reason.LATENTS_GONE


async def test_a_job_that_is_decoded_counts_as_finished(bench: Bench) -> None:
    bench.decoder.gate.close()
    job = await bench.submit()
    await bench.decoder.gate.reached()
    assert (await bench.amend(job.job_id)).spec.step_count == 4
    refined = await bench.amend(job.job_id, 6)
    assert refined.refines_job_id == job.job_id
    await bench.decoder.gate.open()
    for each in (job, refined):
        assert kinds(await bench.events(each.job_id))[-1] == "succeeded"


async def test_the_death_of_its_denoiser_does_not_undo_a_change(bench: Bench) -> None:

    job = await running(bench)
    await bench.amend(job.job_id, 7)
    await bench.denoiser.die()
    await bench.add(DenoiserPeer(bench.exchange, "denoiser-1"))
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
    [request] = bench.denoisers[1].calls_of(job.job_id)
    assert request.spec.step_count == 7
    assert request.call.rank == (await bench.job(job.job_id)).rank


async def test_a_router_that_takes_over_goes_on_with_the_changed_job(bench: Bench) -> None:
    job = await running(bench)
    amended = await bench.amend(job.job_id, 7, "more")
    await bench.stop_router()
    await bench.denoiser.gate.open()
    await bench.start_router()
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
    assert bench.denoiser.calls_of(job.job_id)[-1].spec.step_count == 7
    done = await bench.job(job.job_id)
    assert (done.spec.step_count, done.rank) == (7, amended.rank)
    assert (await bench.amend(job.job_id, 7, "more")).job_id == job.job_id


async def test_a_change_while_the_job_is_cancelled(bench: Bench) -> None:
    job = await running(bench)
    results = await asyncio.gather(bench.cancel(job.job_id), bench.amend(job.job_id, 9), return_exceptions=True)
    assert not [each for each in results if isinstance(each, Exception) and not isinstance(each, TriptychError)]
    assert kinds(await bench.events(job.job_id))[-1] == "cancelled"
