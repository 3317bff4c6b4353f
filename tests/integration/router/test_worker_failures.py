"""Workers that die, drain, refuse, or find their input gone."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from tests.integration.exchange.payloads import subject
from tests.integration.router.bench import CONFIG, Bench, kinds, spec
from tests.integration.router.peers import DecoderPeer, DenoiserPeer, EncoderPeer
from tests.natsd import NatsServer
from triptych.errors import Reason, TriptychError, Violation, from_status, invalid
from triptych.exchange import BundleCorrupt, Exchange
from triptych.exchange.store import STREAMS
from triptych.v1.job_pb2 import JOB_STATE_FAILED, STAGE_DENOISE, Job
from triptych.v1.tensor_pb2 import DataRef

FAST_RETRY = replace(CONFIG, scheduler=replace(CONFIG.scheduler, backoff_s=0.01, return_grace_s=0.0))
ONE_ATTEMPT = replace(FAST_RETRY, scheduler=replace(FAST_RETRY.scheduler, max_attempts=1, return_grace_s=10.0))


@pytest.fixture
async def bench(nats_server: NatsServer, exchange: Exchange) -> object:
    """As elsewhere, with hardly a pause between tries."""
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router(FAST_RETRY)
        yield bench


async def failed(bench: Bench, job: Job) -> TriptychError:
    """The error that a job ends with."""
    events = await bench.events(job.job_id)
    assert kinds(events)[-1] == "failed"
    assert (await bench.job(job.job_id)).state == JOB_STATE_FAILED
    return from_status(events[-1].failed.error)


async def refused_for_good(bench: Bench) -> TriptychError:
    """What a submit is refused with once every worker must have been heard: until then it is too soon to say."""
    async with asyncio.timeout(10):
        while (error := await bench.refusal(spec())).reason is Reason.NOT_READY:  # noqa: ASYNC110 - a pause between calls
            await asyncio.sleep(0.1)
    return error


async def test_a_denoiser_dies_and_another_takes_over(bench: Bench) -> None:
    await bench.denoiser.gate.open(2)
    job = await bench.submit()
    await bench.denoiser.gate.reached(3)
    other = DenoiserPeer(bench.exchange, "denoiser-1")
    await bench.denoiser.die()
    await bench.add(other)
    events = await bench.events(job.job_id)
    assert kinds(events)[-4:] == ["stage_started", "stage_started", "output", "succeeded"]
    assert [event.requeued.reason for event in events if event.HasField("requeued")] == ["WORKER_LOST"]
    assert (await bench.job(job.job_id)).attempt == 2
    assert other.steps[job.job_id] == 4


async def test_a_silent_denoiser_is_lost_and_its_call_given_up(bench: Bench) -> None:
    await bench.denoiser.gate.open(1)
    job = await bench.submit()
    await bench.denoiser.gate.reached(2)
    bench.denoiser.beating = False  # it hangs: its connection stays
    other = DenoiserPeer(bench.exchange, "denoiser-1")
    await bench.add(other)
    await bench.denoiser.cancelled(job.job_id)
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
    assert bench.denoiser.steps[job.job_id] == 1
    assert other.steps[job.job_id] == 4


async def test_a_worker_started_anew_under_its_old_name(bench: Bench) -> None:
    await bench.denoiser.gate.open(1)
    job = await bench.submit()
    await bench.denoiser.gate.reached(2)
    await bench.denoiser.die()
    again = DenoiserPeer(bench.exchange, "denoiser-0", listen=bench.denoiser.address)
    await bench.add(again)
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
    assert again.steps[job.job_id] == 4


async def test_a_job_that_kills_its_workers_fails_in_the_end(bench: Bench) -> None:
    await bench.denoiser.gate.open(1)
    job = await bench.submit()
    for attempt in range(3):
        victim = bench.denoisers[-1]
        await victim.gate.reached(2)
        await victim.die()
        if attempt < 2:
            peer = DenoiserPeer(bench.exchange, f"next-{attempt}")
            await peer.gate.open(1)
            await bench.add(peer)
    assert (await failed(bench, job)).reason is Reason.TOO_MANY_ATTEMPTS


async def test_deaths_count_on_when_the_router_dies_too(bench: Bench) -> None:
    await bench.denoiser.gate.open(1)
    job = await bench.submit()
    for attempt in range(3):
        victim = bench.denoisers[-1]
        await victim.gate.reached(2)
        await victim.die()
        if attempt < 2:
            async for event in bench.watch(job.job_id):
                if any(each.failure_count == attempt + 1 for each in event.requeued.tries):
                    break
            await bench.stop_router()
            peer = DenoiserPeer(bench.exchange, f"next-{attempt}")
            await peer.gate.open(1)
            bench.denoisers[-1].beating = False
            await bench.start_router()
            await bench.add(peer)
    assert (await failed(bench, job)).reason is Reason.TOO_MANY_ATTEMPTS
    [last] = [event for event in await bench.events(job.job_id) if event.requeued.tries][-1:]
    assert [(each.stage, each.failure_count) for each in last.requeued.tries] == [(STAGE_DENOISE, 2)]


async def test_a_worker_that_was_silent_and_is_heard_again_costs_no_attempt(bench: Bench) -> None:
    bench.reconfigure(ONE_ATTEMPT)
    await bench.denoiser.gate.open(1)
    job = await bench.submit()
    await bench.denoiser.gate.reached(2)
    bench.denoiser.beating = False
    requeued = (await bench.until(job.job_id, "requeued")).requeued
    assert [(each.failure_count, each.suspect) for each in requeued.tries] == [(1, True)]
    bench.denoiser.beating = True
    await bench.denoiser.gate.open()
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
    assert (await bench.job(job.job_id)).attempt == 2


async def test_a_job_whose_only_attempt_died_with_its_worker_fails_after_a_while(bench: Bench) -> None:
    bench.reconfigure(replace(ONE_ATTEMPT, scheduler=replace(ONE_ATTEMPT.scheduler, return_grace_s=0.1)))
    await bench.denoiser.gate.open(1)
    job = await bench.submit()
    await bench.denoiser.gate.reached(2)
    await bench.denoiser.die()
    error = await failed(bench, job)
    assert error.reason is Reason.TOO_MANY_ATTEMPTS
    assert "worker denoiser-0 was lost" in error.message


@pytest.mark.parametrize("stage", ["encoder", "denoiser", "decoder"])
async def test_a_connection_that_breaks_costs_no_attempt_while_the_worker_lives(bench: Bench, stage: str) -> None:
    bench.reconfigure(ONE_ATTEMPT)
    peer = getattr(bench, stage)
    peer.gate.close()
    job = await bench.submit()
    await peer.gate.reached()
    await peer.hang_up()
    await peer.gate.open()
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_a_twin_is_refused_by_name_and_the_first_goes_on(bench: Bench, elsewhere: bool) -> None:
    """Of its stage at another address, or of another stage altogether."""
    bench.reconfigure(ONE_ATTEMPT)
    await bench.denoiser.gate.open(1)
    job = await bench.submit()
    await bench.denoiser.gate.reached(2)
    twin = (DenoiserPeer if elsewhere else EncoderPeer)(bench.exchange, "denoiser-0")
    with capture_logs() as logs:
        async with twin:
            async with asyncio.timeout(10):
                while not (refused := [line for line in logs if line["event"] == "worker_refused"]):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)  # a pause between two looks
            await bench.denoiser.gate.open()
            assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
    assert (await bench.job(job.job_id)).attempt == 1
    assert bench.denoiser.steps[job.job_id] == 4
    assert not twin.calls
    assert not [line for line in logs if line["event"] == "worker_lost"]
    [line] = refused
    assert (line["address"], line["refused_address"]) == (bench.denoiser.address, twin.address)
    assert "worker_id" in line["remedy"]


async def test_a_worker_that_was_silent_gives_way_to_another_of_its_id(bench: Bench) -> None:
    await bench.denoiser.gate.open(1)
    job = await bench.submit()
    await bench.denoiser.gate.reached(2)
    bench.denoiser.beating = False
    twin = DenoiserPeer(bench.exchange, "denoiser-0")
    await bench.add(twin)
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
    assert twin.steps[job.job_id] == 4


@pytest.mark.parametrize("stage", ["encoder", "denoiser", "decoder"])
async def test_a_worker_that_was_dead_before_the_call_costs_no_try(bench: Bench, stage: str) -> None:
    bench.reconfigure(replace(FAST_RETRY, scheduler=replace(FAST_RETRY.scheduler, max_attempts=1)))
    dead = getattr(bench, stage)
    await dead.die()
    job = await bench.submit()
    await bench.until(job.job_id, "requeued")
    await bench.add(type(dead)(bench.exchange, f"{stage}-1"))
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"


@pytest.mark.parametrize("stage", ["encoder", "decoder"])
async def test_a_worker_that_dies_at_work_costs_one(bench: Bench, stage: str) -> None:
    bench.reconfigure(replace(FAST_RETRY, scheduler=replace(FAST_RETRY.scheduler, max_attempts=1)))
    peer = getattr(bench, stage)
    peer.gate.close()
    job = await bench.submit()
    await peer.gate.reached()
    await peer.die()
    assert (await failed(bench, job)).reason is Reason.TOO_MANY_ATTEMPTS


async def test_conditioning_that_is_gone_is_made_again(bench: Bench) -> None:
    bench.denoiser.errors.append(TriptychError(Reason.CONDITIONING_GONE, "gone"))
    job = await bench.submit()
    events = await bench.events(job.job_id)
    assert kinds(events)[-1] == "succeeded"
    assert len(bench.encoder.calls_of(job.job_id)) == 2
    assert kinds(events).count("encoded") == 2


async def test_conditioning_that_is_damaged_is_found_by_nobody_again(bench: Bench) -> None:
    bench.denoiser.errors.append(BundleCorrupt(DataRef(store="conditioning"), "cut short"))
    job = await bench.submit()
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
    [damaged], [again] = (call.conditioning for call in bench.denoiser.calls_of(job.job_id))
    assert not await bench.exchange.exists(damaged.data)
    assert await bench.exchange.exists(again.data)


async def test_conditioning_that_a_decode_misses_is_made_again_and_the_latents_are_not(bench: Bench) -> None:
    bench.decoder.gate.close()
    job = await bench.submit(spec(output_count=3))
    await bench.decoder.gate.reached(3)
    for conditioning in bench.decoder.calls[0].conditioning:
        await bench.exchange.delete(conditioning.data)
    await bench.decoder.gate.open()
    events = await bench.events(job.job_id)
    assert kinds(events)[-1] == "succeeded"
    assert {event.requeued.reason for event in events if event.HasField("requeued")} == {"CONDITIONING_GONE"}
    assert len(bench.encoder.calls_of(job.job_id)) == 2
    assert bench.denoiser.steps[job.job_id] == 12
    assert await bench.download(job.job_id, 2) == b"output of 9"


async def test_latents_that_are_gone_are_made_again(bench: Bench) -> None:
    bench.decoder.errors.append(TriptychError(Reason.LATENTS_GONE, "gone"))
    job = await bench.submit(spec(output_count=2))
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
    assert bench.denoiser.steps[job.job_id] in (8, 12)  # one output, or both, if it was told before the second
    assert await bench.download(job.job_id, 1) == b"output of 8"


@pytest.mark.parametrize("keep", [lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: data[:-3]])
async def test_latents_that_are_damaged_are_made_again_and_an_output_is_never_shown(
    bench: Bench, keep: Callable[[bytes], bytes]
) -> None:
    bench.decoder.gate.close()
    job = await bench.submit()
    await bench.decoder.gate.reached()
    await damage(bench, bench.decoder.calls[-1].latents.data, keep)
    await bench.decoder.gate.open()
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
    assert bench.denoiser.steps[job.job_id] == 8
    assert await bench.download(job.job_id) == b"output of 7"
    [output] = (await bench.job(job.job_id)).outputs
    await damage(bench, output.data, keep)
    with pytest.raises(TriptychError, match="is corrupt") as caught:
        await bench.download(job.job_id)
    assert caught.value.reason is Reason.BUNDLE_CORRUPT


async def damage(bench: Bench, ref: DataRef, keep: Callable[[bytes], bytes]) -> None:
    """Change what a small bundle, which lies in its manifest's message, consists of."""
    message = await bench.exchange.jetstream.get_last_msg(STREAMS[ref.store], subject(ref, "m"))
    await bench.exchange.jetstream.publish(subject(ref, "m"), keep(message.data))


@pytest.mark.parametrize("reason", [Reason.NO_SLOT, Reason.EXCHANGE_UNAVAILABLE, Reason.OUT_OF_MEMORY])
async def test_what_may_pass_is_tried_again(bench: Bench, reason: Reason) -> None:
    bench.denoiser.errors.append(TriptychError(reason, "not now"))
    job = await bench.submit()
    events = await bench.events(job.job_id)
    assert kinds(events)[-1] == "succeeded"
    assert [event.requeued.reason for event in events if event.HasField("requeued")] == [reason.name]


async def test_a_decode_that_fails_is_tried_again(bench: Bench) -> None:
    bench.decoder.errors.append(TriptychError(Reason.STAGE_FAILED, "a bad day"))
    job = await bench.submit()
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
    assert bench.denoiser.steps[job.job_id] == 4


async def test_a_job_fails_of_its_own_fault_at_once_and_alone(bench: Bench) -> None:
    bench.encoder.errors.append(invalid(Violation("spec.extra.eta", "the block refuses it")))
    job = await bench.submit()
    error = await failed(bench, job)
    assert error.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in error.violations] == ["spec.extra.eta"]
    bench.denoiser.errors.append(TriptychError(Reason.STAGE_FAILED, "NaN in step 3"))
    broken = await bench.submit()
    error = await failed(bench, broken)
    assert (error.reason, error.message) == (Reason.STAGE_FAILED, "NaN in step 3")
    assert len(bench.denoiser.calls_of(broken.job_id)) == 1
    assert kinds(await bench.events((await bench.submit()).job_id))[-1] == "succeeded"


async def test_too_many_tries_fail_with_the_reason(bench: Bench) -> None:
    bench.denoiser.errors += [TriptychError(Reason.INTERNAL, "broken")] * 3
    error = await failed(bench, await bench.submit())
    assert error.reason is Reason.TOO_MANY_ATTEMPTS
    assert "INTERNAL" in error.message


async def test_memory_that_stays_short_is_the_reason(bench: Bench) -> None:
    bench.denoiser.errors += [TriptychError(Reason.OUT_OF_MEMORY, "out of memory")] * 3
    error = await failed(bench, await bench.submit())
    assert error.reason is Reason.OUT_OF_MEMORY


async def test_a_draining_worker_gets_nothing_new(bench: Bench) -> None:
    await bench.denoiser.gate.open(1)
    job = await bench.submit()
    await bench.denoiser.gate.reached(2)
    await bench.denoiser.drain()
    other = DenoiserPeer(bench.exchange, "denoiser-1")
    await bench.add(other)
    later = await bench.submit(spec(prompt="later"))
    assert kinds(await bench.events(later.job_id))[-1] == "succeeded"
    assert other.steps[later.job_id] == 4
    await bench.denoiser.gate.open()
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"  # what runs goes on
    assert bench.denoiser.steps[job.job_id] == 4


async def test_a_worker_that_says_draining_before_its_heartbeat_does(bench: Bench) -> None:
    other = DenoiserPeer(bench.exchange, "denoiser-1")
    bench.denoiser.beating = False
    bench.denoiser.errors.append(TriptychError(Reason.DRAINING, "going down"))
    job = await bench.submit()
    await bench.until(job.job_id, "requeued")
    await bench.add(other)
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
    assert other.steps[job.job_id] == 4


@pytest.mark.parametrize("stage", ["encode", "denoise", "decode"])
async def test_a_job_is_taken_while_the_only_worker_of_a_stage_starts_anew(bench: Bench, stage: str) -> None:
    peers = {"encode": bench.encoder, "denoise": bench.denoiser, "decode": bench.decoder}
    await peers[stage].die()
    await bench.fleet_lacks(peers[stage].worker_id)
    job = await bench.submit()
    kind = {"encode": EncoderPeer, "denoise": DenoiserPeer, "decode": DecoderPeer}[stage]
    await bench.add(kind(bench.exchange, peers[stage].worker_id))
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"


async def test_a_stage_that_nobody_runs_for_longer_is_named(nats_server: NatsServer, exchange: Exchange) -> None:
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router(replace(CONFIG, scheduler=replace(CONFIG.scheduler, absence_grace_s=0.0)))
        await bench.decoder.die()
        await bench.fleet_lacks(bench.decoder.worker_id)
        error = await refused_for_good(bench)
        assert error.reason is Reason.NO_WORKER
        assert "has run decode of the model" in error.message


async def test_no_worker_is_said_at_once(nats_server: NatsServer, exchange: Exchange) -> None:
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_router()
        error = await refused_for_good(bench)
        assert error.reason is Reason.NO_WORKER
        assert error.retry_after_s is not None
