"""The disk of NATS's store gets full under a router, and has room again."""

import asyncio
import signal
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.router.bench import CONFIG, Bench, kinds, spec
from tests.integration.router.test_standby import two_routers
from tests.natsd import NatsServer
from tests.small_disk import SmallDisk, small_disk
from triptych.errors import Reason, TriptychError
from triptych.exchange import DiskFull, Exchange
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import Job

# Answers of NATS otherwise take ten seconds to be missed.
SOON_S = 5.0
LARGE = spec(prompt="x" * 1000)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 32) as disk:
        yield disk


@pytest.fixture
def nats_server(disk: SmallDisk) -> Iterator[NatsServer]:
    server = NatsServer(disk.path / "nats")
    server.start()
    yield server
    server.stop()


async def told(asking: Awaitable[Job]) -> Job | TriptychError:
    """The answer, which comes soon."""
    try:
        async with asyncio.timeout(SOON_S):
            return await asking
    except TriptychError as error:
        return error


async def refused(bench: Bench) -> tuple[str, set[str]]:
    """Submit until one is refused; its request id, and the jobs that were accepted in what was left of a page."""
    accepted: set[str] = set()
    while isinstance(answer := await told(bench.submit(LARGE, f"request-{len(accepted)}")), Job):
        accepted.add(answer.job_id)
    assert answer.reason is Reason.DISK_FULL
    assert "free some of it" in answer.message
    assert answer.retry_after_s
    return f"request-{len(accepted)}", accepted


async def accepted_again(bench: Bench, request_id: str) -> str:
    """The job of a request that was refused, as soon as there is room."""
    async with asyncio.timeout(20):
        while isinstance(answer := await told(bench.submit(LARGE, request_id)), TriptychError):
            assert answer.reason in (Reason.DISK_FULL, Reason.EXCHANGE_UNAVAILABLE, Reason.NOT_READY)
            await asyncio.sleep(0.1)  # a pause between two calls
    return answer.job_id


async def test_what_is_refused_leaves_nothing_and_what_was_accepted_goes_on(
    bench: Bench, disk: SmallDisk, nats_server: NatsServer
) -> None:
    await bench.denoiser.gate.open(2)
    running = await bench.submit()
    await bench.denoiser.gate.reached(3)
    disk.fill()
    request_id, accepted = await refused(bench)
    for _ in range(3):
        assert (await bench.refusal(spec(), request_id="another")).reason is Reason.DISK_FULL
    await bench.denoiser.gate.open()
    disk.free()
    nats_server.stop()
    nats_server.start()
    again = await accepted_again(bench, request_id)
    everyone = {running.job_id, again, *accepted}
    for job_id in everyone:
        assert kinds(await bench.events(job_id))[-1] == "succeeded"
    assert {job.job_id for job in (await bench.stub.ListJobs(pb.ListJobsRequest())).jobs} == everyone
    assert bench.denoiser.steps[running.job_id] == 4


async def test_what_changes_a_job_is_answered_too(bench: Bench, disk: SmallDisk) -> None:
    await bench.denoiser.gate.open(2)
    running, waiting = await bench.submit(), await bench.submit()
    await bench.denoiser.gate.reached(3)
    disk.fill()
    await refused(bench)
    amended = await told(bench.amend(running.job_id, 8))
    assert isinstance(amended, TriptychError)
    assert amended.reason is Reason.DISK_FULL
    # Done where there is room for the word of it; else it says why not.
    for job in (running, waiting):
        cancelled = await told(bench.cancel(job.job_id))
        assert isinstance(cancelled, Job) or cancelled.reason is Reason.DISK_FULL


async def test_a_stage_that_finds_the_disk_full_waits_and_costs_no_try(
    nats_server: NatsServer, exchange: Exchange
) -> None:
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        config = replace(CONFIG.scheduler, max_attempts=1, max_setbacks=1, backoff_s=0.01)
        await bench.start_router(replace(CONFIG, scheduler=config))
        for peer in bench.peers:
            peer.errors.append(DiskFull("its stream"))
        job = await bench.submit()
        events = await bench.events(job.job_id)
        assert kinds(events)[-1] == "succeeded"
        assert [event.requeued.reason for event in events if event.HasField("requeued")] == ["DISK_FULL"] * 3


async def test_who_cannot_lead_for_it_says_so(
    nats_server: NatsServer, exchange: Exchange, disk: SmallDisk, tmp_path: Path
) -> None:
    async with two_routers(nats_server.url, exchange, tmp_path) as pair:
        disk.fill()
        await pair.leader.end(signal.SIGKILL)
        async with asyncio.timeout(20):
            while (await pair.bench.refusal(spec())).reason is not Reason.DISK_FULL:  # noqa: ASYNC110 - a pause
                await asyncio.sleep(0.1)
        disk.free()
        nats_server.stop()
        nats_server.start()
        assert await accepted_again(pair.bench, "again")
