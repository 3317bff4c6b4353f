"""Two routers: one leads, the other answers reads, sends the rest on, and leads when the first one does not."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.integration.router.bench import Bench, check_log, kinds, spec
from tests.integration.router.process import RouterProcess
from tests.natsd import NatsServer
from triptych.exchange import Exchange
from triptych.rpc import Credentials, open_channel
from triptych.rpc.channel import OPEN
from triptych.tokens import new_token, token_entry
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import JOB_STATE_CANCELLED, JOB_STATE_QUEUED, JOB_STATE_RUNNING, JOB_STATE_SUCCEEDED
from triptych.v1.router_service_pb2_grpc import RouterServiceStub


class Pair:
    """The bench talks to the standby; `leader_stub` to the leader."""

    def __init__(self, bench: Bench, leader: RouterProcess, standby: RouterProcess, leader_stub: Any) -> None:
        self.bench = bench
        self.leader = leader
        self.standby = standby
        self.leader_stub = leader_stub


@asynccontextmanager
async def two_routers(
    url: str, exchange: Exchange, folder: Path, credentials: Credentials = OPEN, **flags: str
) -> AsyncIterator[Pair]:
    """A leader, its standby, and workers of one slot."""
    async with AsyncExitStack() as stack:
        bench = await stack.enter_async_context(Bench(url, exchange, credentials))
        await bench.start_peers(slots=1)
        leader = await stack.enter_async_context(RouterProcess(url, folder / "a", **flags))
        waiting = RouterProcess(url, folder / "b", begun="router_standing_by", **flags)
        standby = await stack.enter_async_context(waiting)
        channel = await stack.enter_async_context(open_channel(leader.address, credentials))
        await bench.connect(standby.address)
        await bench.fleet_has({peer.worker_id for peer in bench.peers})
        yield Pair(bench, leader, standby, RouterServiceStub(channel))


@pytest.fixture
async def pair(nats_server: NatsServer, exchange: Exchange, tmp_path: Path) -> AsyncIterator[Pair]:
    async with two_routers(nats_server.url, exchange, tmp_path, disconnect_grace_s="1.5") as pair:
        yield pair


async def held(bench: Bench, job_id: str) -> None:
    """Wait until the job is held after two of its steps."""
    await bench.denoiser.gate.reached(3)
    await bench.until(job_id, "stage_started")


async def test_a_standby_answers_reads_and_sends_on_the_rest(pair: Pair) -> None:
    bench = pair.bench
    await bench.denoiser.gate.open(2)
    job = await bench.submit(request_id="one")
    await held(bench, job.job_id)
    assert (await bench.job(job.job_id)).state == JOB_STATE_RUNNING
    (listed,) = (await bench.stub.ListJobs(pb.ListJobsRequest(states=[JOB_STATE_RUNNING]))).jobs
    assert listed.job_id == job.job_id
    assert [model.name for model in (await bench.stub.ListModels(pb.ListModelsRequest())).models] == ["shapes"]
    refused = await bench.refusal(spec(width=7))
    assert [violation.field for violation in refused.violations] == ["spec.width"]
    await bench.denoiser.gate.open()
    events = await bench.events(job.job_id)
    assert events == [each.event async for each in pair.leader_stub.WatchJob(pb.WatchJobRequest(job_id=job.job_id))]
    assert await bench.download(job.job_id) == b"output of 7"
    assert not pair.standby.logged("router_ready")


async def test_a_watch_goes_on_when_the_leader_is_killed(pair: Pair) -> None:
    bench = pair.bench
    await bench.denoiser.gate.open(2)
    running = await bench.submit(request_id="running")
    watching = asyncio.create_task(bench.events(running.job_id))
    await held(bench, running.job_id)
    queued = await bench.submit(spec(prompt="queued", seed=20))
    assert queued.state == JOB_STATE_QUEUED
    await pair.leader.end(signal.SIGKILL)
    # Answered by the next leader, once there is one: no client has to ask twice.
    later = await bench.submit(spec(prompt="later", seed=21))
    await bench.denoiser.gate.open()
    check_log(await watching)
    for job in (queued, later):
        check_log(await bench.events(job.job_id))
    assert (await bench.submit(request_id="running")).job_id == running.job_id
    assert pair.standby.logged("router_ready") == 1


async def test_a_leader_that_was_stopped_does_nothing_more(pair: Pair) -> None:
    bench = pair.bench
    await bench.denoiser.gate.open(2)
    running = await bench.submit()
    await held(bench, running.job_id)
    queued = await bench.submit(spec(prompt="queued", seed=20))
    await bench.until(queued.job_id, "encoded")
    pair.leader.signal(signal.SIGSTOP)
    # It lies in the stopped router's socket until that goes on.
    late = asyncio.ensure_future(pair.leader_stub.SubmitJob(pb.SubmitJobRequest(spec=spec(seed=30), request_id="late")))
    await pair.standby.until("router_ready")
    await bench.denoiser.gate.open()
    check_log(await bench.events(running.job_id))
    calls = len(bench.denoiser.calls)
    pair.leader.signal(signal.SIGCONT)
    await pair.leader.until("router_gave_up")
    await pair.leader.until("router_standing_by", 2)
    check_log(await bench.events(queued.job_id))
    # Sent on to the new leader, or refused: never accepted for nothing.
    (answer,) = await asyncio.gather(late, return_exceptions=True)
    accepted = await bench.submit(spec(seed=30), request_id="late")
    if isinstance(answer, grpc.aio.AioRpcError):
        assert answer.code() is grpc.StatusCode.UNAVAILABLE
    else:
        assert answer.job.job_id == accepted.job_id
    check_log(await bench.events(accepted.job_id))
    assert len({call.call.epoch for call in bench.denoiser.calls[calls:]}) == 1
    # It serves on, as the standby of the other.
    job = (await pair.leader_stub.SubmitJob(pb.SubmitJobRequest(spec=spec(seed=31)))).job
    events = [each.event async for each in pair.leader_stub.WatchJob(pb.WatchJobRequest(job_id=job.job_id))]
    check_log(events)
    assert await pair.leader.end(signal.SIGTERM) == 0


async def test_a_leader_that_ends_hands_over_at_once(pair: Pair) -> None:
    bench = pair.bench
    await bench.denoiser.gate.open(2)
    generating = asyncio.create_task(_generate(bench.stub))
    await bench.denoiser.gate.reached(3)
    ended = asyncio.create_task(pair.leader.end(signal.SIGTERM))
    await pair.standby.until("router_ready")
    await bench.denoiser.gate.open()
    responses = await generating
    assert await ended == 0
    assert [each.WhichOneof("event") for each in responses].count("accepted") == 1
    check_log([each.job_event for each in responses if each.HasField("job_event")])
    assert b"".join(each.chunk.data for each in responses if each.HasField("chunk")) == b"output of 7"
    assert [line for line in pair.leader.log if line["event"] == "leadership_resigned"]


async def test_whose_router_was_killed_has_a_while_to_come_back(pair: Pair) -> None:
    bench = pair.bench
    await bench.denoiser.gate.open(2)
    back, gone = (asyncio.create_task(_generate(pair.leader_stub, request_id=name)) for name in ("back", "gone"))
    await bench.denoiser.gate.reached(3)
    async with asyncio.timeout(10):
        while len(jobs := (await bench.stub.ListJobs(pb.ListJobsRequest())).jobs) < 2:  # noqa: ASYNC110 - reads a store
            await asyncio.sleep(0.05)
    await pair.leader.end(signal.SIGKILL)
    for each in (back, gone):
        with pytest.raises(grpc.aio.AioRpcError):
            await each
    returned = asyncio.create_task(_generate(bench.stub, request_id="back"))
    await pair.standby.until("client_not_back")
    await bench.denoiser.gate.open()
    responses = await returned
    check_log([each.job_event for each in responses if each.HasField("job_event")])
    states = {job.job_id: (await bench.job(job.job_id)).state for job in jobs}
    assert sorted(states.values()) == sorted([JOB_STATE_SUCCEEDED, JOB_STATE_CANCELLED])
    assert states[responses[0].accepted.job_id] == JOB_STATE_SUCCEEDED
    # Who comes back later than that begins again.
    again = await _generate(bench.stub, request_id="gone")
    assert again[0].accepted.job_id not in states
    check_log([each.job_event for each in again if each.HasField("job_event")])


async def test_a_submitted_job_goes_on_when_a_client_of_its_stream_leaves_a_standby(pair: Pair) -> None:
    bench = pair.bench
    await bench.denoiser.gate.open(2)
    kept = bench.stub.GenerateMedia(pb.GenerateMediaRequest(spec=spec(), request_id="kept"))
    job = (await kept.read()).accepted
    await held(bench, job.job_id)
    assert (await bench.submit(request_id="kept")).job_id == job.job_id
    left = bench.stub.GenerateMedia(pb.GenerateMediaRequest(spec=spec(seed=20)))
    other = (await left.read()).accepted
    kept.cancel()
    left.cancel()
    assert (await bench.events(other.job_id))[-1].cancelled.reason == "CLIENT_GONE"
    await bench.denoiser.gate.open()
    check_log(await bench.events(job.job_id))


async def test_who_leaves_a_standby_cancels_at_once(pair: Pair) -> None:
    bench = pair.bench
    await bench.denoiser.gate.open(2)
    call = bench.stub.GenerateMedia(pb.GenerateMediaRequest(spec=spec()))
    accepted = (await call.read()).accepted
    await held(bench, accepted.job_id)
    call.cancel()
    assert kinds(await bench.events(accepted.job_id))[-1] == "cancelled"
    await bench.denoiser.cancelled(accepted.job_id)
    assert not pair.leader.logged("client_not_back")


async def test_a_stream_counts_once_for_its_tenant_when_its_standby_leads(
    nats_server: NatsServer, exchange: Exchange, tmp_path: Path
) -> None:
    token, tokens_file = new_token(), tmp_path / "tokens.toml"
    entry = token_entry(token, "acme", ["submit", "read", "admin"])
    tokens_file.write_text(f"{entry}\n[tenants.acme]\nmax_streams = 1\n")
    flags = {"tokens_file": str(tokens_file), "disconnect_grace_s": "60"}
    async with two_routers(nats_server.url, exchange, tmp_path, Credentials(token=token), **flags) as pair:
        bench = pair.bench
        await bench.denoiser.gate.open(2)
        generating = asyncio.create_task(_generate(bench.stub))
        await bench.denoiser.gate.reached(3)
        await pair.leader.end(signal.SIGKILL)
        await pair.standby.until("router_ready")
        await bench.denoiser.gate.open()
        responses = await asyncio.wait_for(generating, 30)
        check_log([each.job_event for each in responses if each.HasField("job_event")])


async def _generate(stub: Any, request_id: str = "") -> list[pb.GenerateMediaResponse]:
    return [each async for each in stub.GenerateMedia(pb.GenerateMediaRequest(spec=spec(), request_id=request_id))]
