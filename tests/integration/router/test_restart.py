"""A router that is killed or ended, and the next one: what was accepted is done, once."""

import asyncio
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from services.router.store.records import JobStore
from tests.integration.router.bench import CONFIG, Bench, check_log, spec
from tests.integration.router.process import RouterProcess
from tests.natsd import NatsServer
from triptych.exchange import Exchange
from triptych.v1.job_pb2 import JOB_STATE_QUEUED, Job, JobEvent, JobRecord


@pytest.fixture
async def peers(nats_server: NatsServer, exchange: Exchange) -> AsyncIterator[Bench]:
    """Peers with one slot each, and no router."""
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers(slots=1)
        yield bench


async def use(bench: Bench, router: RouterProcess) -> None:
    """Talk to this router once it has all peers."""
    await bench.connect(router.address)
    await bench.fleet_has({peer.worker_id for peer in bench.peers})


async def one_running_three_queued(bench: Bench) -> list[Job]:
    """The first is held after two of its steps, the others wait with their conditioning made."""
    await bench.denoiser.gate.open(2)
    running = await bench.submit(request_id="running")
    await bench.denoiser.gate.reached(3)
    queued = [await bench.submit(spec(prompt=f"queued {index}", seed=20 + index)) for index in range(3)]
    for job in queued:
        await bench.until(job.job_id, "encoded")
    return [running, *queued]


async def recorded_latents(bench: Bench, job_id: str) -> None:
    """Wait until the job's record names its latents."""
    watcher = await (await bench.exchange.bucket("jobs")).watch(f"job.*.{job_id}")
    async with asyncio.timeout(10):
        async for entry in watcher:
            if entry is not None and JobRecord.FromString(entry.value).latents:
                break
    await watcher.stop()


async def test_killed_with_one_job_running_and_three_queued(
    peers: Bench, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with RouterProcess(nats_server.url, tmp_path / "router") as router:
        await use(peers, router)
        jobs = await one_running_three_queued(peers)
        seen = [event async for event in _some(peers, jobs[0].job_id, 4)]
        await router.end(signal.SIGKILL)
    await peers.denoiser.cancelled(jobs[0].job_id)
    await peers.denoiser.gate.open()
    async with RouterProcess(nats_server.url, tmp_path / "router") as router:
        await use(peers, router)
        logs = [await peers.events(job.job_id) for job in jobs]
        for events in logs:
            check_log(events)
        assert logs[0][: len(seen)] == seen
        assert [event.requeued.reason for event in logs[0] if event.HasField("requeued")] == ["ROUTER_LOST"]
        assert [peers.denoiser.steps[job.job_id] for job in jobs] == [2 + 4, 4, 4, 4]
        assert [await peers.download(job.job_id) for job in jobs] == [
            b"output of 7",
            b"output of 20",
            b"output of 21",
            b"output of 22",
        ]
        assert (await peers.submit(request_id="running")).job_id == jobs[0].job_id
        assert (await peers.job(jobs[0].job_id)).attempt == 2


async def test_killed_while_a_job_is_decoded(peers: Bench, nats_server: NatsServer, tmp_path: Path) -> None:
    peers.decoder.gate.close()
    async with RouterProcess(nats_server.url, tmp_path / "router") as router:
        await use(peers, router)
        job = await peers.submit()
        await peers.decoder.gate.reached()
        await recorded_latents(peers, job.job_id)
        await router.end(signal.SIGKILL)
    await peers.decoder.gate.open()
    async with RouterProcess(nats_server.url, tmp_path / "router") as router:
        await use(peers, router)
        check_log(await peers.events(job.job_id))
    assert peers.denoiser.steps[job.job_id] == 4  # its latents were there: no step ran twice


async def test_ended_in_order(peers: Bench, nats_server: NatsServer, tmp_path: Path) -> None:
    async with RouterProcess(nats_server.url, tmp_path / "router") as router:
        await use(peers, router)
        jobs = await one_running_three_queued(peers)
        assert await router.end(signal.SIGTERM) == 0
        assert not router.address_file.exists()
    await peers.denoiser.gate.open()
    async with RouterProcess(nats_server.url, tmp_path / "router") as router:
        await use(peers, router)
        for job in jobs:
            check_log(await peers.events(job.job_id))
    assert [peers.denoiser.steps[job.job_id] for job in jobs[1:]] == [4, 4, 4]


async def test_a_drain_has_what_runs_handed_back_and_starts_nothing(bench: Bench) -> None:
    await bench.stop_router()
    await bench.start_router(replace(CONFIG, drain_seconds=5.0))
    await bench.denoiser.gate.open(1)
    running = await bench.submit()
    await bench.denoiser.gate.reached(2)
    queued = await bench.submit(spec(prompt="later"))
    ending = asyncio.create_task(bench.end_router())
    await bench.denoiser.asked_back(running.job_id)
    await bench.unready()
    error = await bench.refusal(spec())
    assert error.reason.name == "DRAINING"
    await bench.denoiser.gate.open()
    assert await ending == 0
    assert len(bench.denoiser.calls_of(running.job_id)) == 1
    assert not bench.denoiser.calls_of(queued.job_id)
    await bench.start_router()
    for job in (running, queued):
        check_log(await bench.events(job.job_id))


async def test_jobs_wait_in_turn_although_the_next_routers_clock_is_behind(bench: Bench) -> None:
    bench.encoder.gate.close()
    first = await bench.submit()
    await bench.stop_router()
    store = JobStore(bench.exchange)
    stored = await store.read(first.tenant, first.job_id)
    assert stored is not None
    # As a router ten minutes ahead would have written it.
    ahead = stored.record.job
    ahead.create_time.seconds += 600
    ahead.rank += 600
    await store.write(stored.record, stored.revision)
    await bench.start_router()
    second = await bench.submit(spec(seed=20))
    assert second.rank > ahead.rank
    await bench.encoder.gate.open()
    for job in (first, second):
        check_log(await bench.events(job.job_id))


async def test_an_accepted_job_is_in_the_store_before_the_answer(bench: Bench) -> None:
    bench.encoder.gate.close()
    job = await bench.submit()
    bucket = await bench.exchange.bucket("jobs")
    assert (await bucket.get(f"job.{job.tenant}.{job.job_id}")).value
    assert job.state == JOB_STATE_QUEUED
    assert job.last_sequence == 1


async def _some(bench: Bench, job_id: str, count: int) -> AsyncIterator[JobEvent]:
    async for event in bench.watch(job_id):
        yield event
        if event.sequence == count:
            return
