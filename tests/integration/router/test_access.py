"""Who may do what: every call of the contract × every kind of caller. A call that no row is about fails the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from services.router.access.permissions import NEEDED_SCOPES
from services.router.access.principal import Scope
from tests.integration.router.access_matrix import MATRIX, OF_A_JOB, expected, submit
from tests.integration.router.bench import CONFIG, Bench, spec
from tests.integration.router.gatehouse import Gatehouse, write_tokens
from tests.natsd import NatsServer
from triptych.errors import Reason, TriptychError
from triptych.exchange import Exchange
from triptych.rpc import Credentials, open_channel
from triptych.tokens import new_token, token_entry
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import JOB_STATE_CANCELLED, JOB_STATE_QUEUED, JOB_STATE_RUNNING, STAGE_DENOISE
from triptych.v1.worker_pb2 import ActiveJob

SERVICE = pb.DESCRIPTOR.services_by_name["RouterService"]
METHODS = [method.name for method in SERVICE.methods]
UNKNOWN = "0" * 26

QUOTAS = """
[tenants.acme]
max_jobs = 2
max_queued_s = 1.0
max_streams = 1
[tenants.rival]
calls_per_s = 0.01
burst = 1
[tenants.default]
max_queued_s = 1e-9
"""


@pytest.fixture
async def gatehouse(nats_server: NatsServer, exchange: Exchange, tmp_path: Path) -> AsyncIterator[Gatehouse]:
    tokens = write_tokens(tmp_path / "tokens.toml")
    async with Bench(nats_server.url, exchange, Credentials(token=tokens["own"])) as bench:
        await bench.start_peers()
        await bench.start_router(replace(CONFIG, tokens_file=tmp_path / "tokens.toml"))
        yield Gatehouse(bench, tokens)


def test_every_call_has_its_scopes_and_its_row() -> None:
    assert set(METHODS) == set(MATRIX) == set(NEEDED_SCOPES)
    assert all(scopes <= set(Scope) - {Scope.ADMIN} for scopes in NEEDED_SCOPES.values())


async def test_the_matrix(gatehouse: Gatehouse) -> None:
    bench = gatehouse.bench
    for method in METHODS:
        for caller, reason in expected(MATRIX[method]).items():
            # A job of its own for each: a cell may cancel it.
            job = await bench.submit()
            await bench.events(job.job_id)
            got = await gatehouse.answer(caller, method, MATRIX[method].request(job.job_id))
            assert got is reason, f"{method} by {caller}"


@pytest.mark.parametrize("state", [JOB_STATE_QUEUED, JOB_STATE_RUNNING], ids=["queued", "running"])
async def test_the_matrix_of_a_job_that_is_not_over(gatehouse: Gatehouse, state: int) -> None:
    bench = gatehouse.bench
    gate = bench.encoder.gate if state == JOB_STATE_QUEUED else bench.denoiser.gate
    gate.close()
    for method in OF_A_JOB:
        for caller, reason in expected(MATRIX[method]).items():
            job = await bench.submit()
            if state == JOB_STATE_RUNNING:
                await denoising(bench, job.job_id)
            assert (await bench.job(job.job_id)).state == state
            served = Reason.OUTPUT_NOT_READY if method == "DownloadOutput" else None
            got = await gatehouse.answer(caller, method, MATRIX[method].request(job.job_id))
            assert got is (reason or served), f"{method} by {caller}"
            changed = method == "CancelJob" and reason is None
            assert (await bench.job(job.job_id)).state == (JOB_STATE_CANCELLED if changed else state)
            await bench.cancel(job.job_id)
    await gate.open()


async def denoising(bench: Bench, job_id: str) -> None:
    """Wait until the job's log says that a denoiser has it."""
    async with aclosing(bench.watch(job_id)) as events:
        async for event in events:
            if event.stage_started.stage == STAGE_DENOISE:
                return


async def test_anothers_job_is_answered_as_one_that_never_was(gatehouse: Gatehouse) -> None:
    bench = gatehouse.bench
    bench.encoder.gate.close()
    waiting = await bench.submit()
    for method in OF_A_JOB:
        errors = []
        for job_id in (waiting.job_id, UNKNOWN):
            with pytest.raises(TriptychError) as caught:
                await gatehouse.call("other", method, MATRIX[method].request(job_id))
            error = caught.value
            errors.append((error.reason, error.message.replace(job_id, "ID"), error.metadata, error.violations))
        assert errors[0] == errors[1], method
    assert (await bench.job(waiting.job_id)).state == waiting.state
    await bench.encoder.gate.open()
    await bench.events(waiting.job_id)


async def test_a_list_has_nothing_of_others(gatehouse: Gatehouse) -> None:
    jobs = [await gatehouse.bench.submit() for _ in range(3)]
    theirs = (await gatehouse.call("other", "SubmitJob", submit(""))).job
    page = await gatehouse.call("other", "ListJobs", pb.ListJobsRequest(page_size=1))
    assert [job.job_id for job in page.jobs] == [theirs.job_id]
    assert page.next_page_token == ""
    everything = await gatehouse.call("admin", "ListJobs", pb.ListJobsRequest())
    assert {job.job_id for job in everything.jobs} == {theirs.job_id, *(job.job_id for job in jobs)}
    assert {job.tenant for job in everything.jobs} == {"acme", "rival"}


async def test_an_admin_sees_jobs_that_memory_has_forgotten(gatehouse: Gatehouse) -> None:
    job = await gatehouse.bench.submit()
    await gatehouse.bench.events(job.job_id)
    await gatehouse.bench.stop_router()
    await gatehouse.bench.start_router()
    found = await gatehouse.call("admin", "GetJob", pb.GetJobRequest(job_id=job.job_id))
    assert found.job.job_id == job.job_id


async def test_request_ids_are_each_tenants_own(gatehouse: Gatehouse) -> None:
    request = pb.SubmitJobRequest(spec=spec(), request_id="first")
    other = pb.SubmitJobRequest(spec=spec(prompt="another"), request_id="first")
    mine = (await gatehouse.call("own", "SubmitJob", request)).job
    theirs = (await gatehouse.call("other", "SubmitJob", other)).job
    assert mine.job_id != theirs.job_id
    assert (mine.tenant, theirs.tenant) == ("acme", "rival")
    assert (await gatehouse.call("submitter", "SubmitJob", request)).job.job_id == mine.job_id


async def test_the_fleet_shows_no_jobs_of_others(gatehouse: Gatehouse) -> None:
    bench = gatehouse.bench
    bench.denoiser.gate.close()
    job = await bench.submit()
    await bench.denoiser.gate.reached()
    bench.denoiser.active = [ActiveJob(job_id=job.job_id, attempt=1)]
    await bench.denoiser.beat()
    shown: dict[str, list[str]] = {}
    addresses: dict[str, set[str]] = {}
    for caller in ("own", "other", "admin"):
        while True:
            fleet = await gatehouse.call(caller, "GetFleet", pb.GetFleetRequest())
            active = [each.job_id for worker in fleet.workers for each in worker.active_jobs]
            if active:  # a heartbeat tells it
                break
            await asyncio.sleep(0.02)  # a pause between two calls
        shown[caller], addresses[caller] = active, {worker.address for worker in fleet.workers}
    assert shown == {"own": [job.job_id], "other": [""], "admin": [job.job_id]}
    assert addresses["own"] == addresses["other"] == {""}
    assert addresses["admin"] == {peer.address for peer in bench.peers}
    await bench.denoiser.gate.open()
    await bench.events(job.job_id)


async def test_health_needs_no_token_and_a_refused_request_is_not_parsed(gatehouse: Gatehouse) -> None:
    async with open_channel(gatehouse.bench.address) as channel:
        serving = await channel.unary_unary("/grpc.health.v1.Health/Check")(b"")
        assert serving == b"\x08\x01"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(f"/{SERVICE.full_name}/SubmitJob")(b"\xff\xff")
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_tokens_can_be_changed_while_it_runs(gatehouse: Gatehouse, tmp_path: Path) -> None:
    path, late = tmp_path / "tokens.toml", new_token()
    gatehouse.tokens["late"] = late
    before = path.read_text()
    assert await gatehouse.answer("late", "ListModels", pb.ListModelsRequest()) is Reason.UNAUTHENTICATED
    path.write_text(before + token_entry(late, "acme", ["read"]))
    gatehouse.bench.reload_router()
    assert await gatehouse.answer("late", "ListModels", pb.ListModelsRequest()) is None
    path.write_text("[[tokens]]\nsha256 = 'no'\n")  # a slip locks nobody out
    gatehouse.bench.reload_router()
    assert await gatehouse.answer("late", "ListModels", pb.ListModelsRequest()) is None
    path.write_text(before)
    gatehouse.bench.reload_router()
    assert await gatehouse.answer("late", "ListModels", pb.ListModelsRequest()) is Reason.UNAUTHENTICATED


async def test_what_a_tenant_may_use_is_bounded(nats_server: NatsServer, exchange: Exchange, tmp_path: Path) -> None:
    tokens = write_tokens(tmp_path / "tokens.toml", QUOTAS)
    async with Bench(nats_server.url, exchange, Credentials(token=tokens["own"])) as bench:
        await bench.start_peers()
        bench.encoder.gate.close()
        await bench.start_router(replace(CONFIG, tokens_file=tmp_path / "tokens.toml"))
        gatehouse = Gatehouse(bench, tokens)
        job = await bench.submit(request_id="one")
        await bench.submit()
        async with aclosing(bench.watch(job.job_id)) as watching:
            await anext(watching)
            with pytest.raises(TriptychError) as caught:
                await gatehouse.call("own", "WatchFleet", pb.WatchFleetRequest())
            assert caught.value.metadata["quota"] == "max_streams"
            assert await gatehouse.answer("other", "WatchFleet", pb.WatchFleetRequest()) is None
        # More work passes the quota again; less of it is always allowed.
        with pytest.raises(TriptychError) as caught:
            await bench.amend(job.job_id, 100)
        assert caught.value.metadata["quota"] == "max_queued_s"
        assert (await bench.job(job.job_id)).spec.step_count == 4
        assert (await bench.amend(job.job_id, 3)).spec.step_count == 3
        assert (await bench.amend(job.job_id, 4)).spec.step_count == 4
        refused = await bench.refusal(spec())
        assert (refused.reason, refused.metadata["quota"]) == (Reason.QUOTA_EXCEEDED, "max_jobs")
        assert refused.retry_after_s is not None
        told = (await gatehouse.call("own", "EstimateJob", pb.EstimateJobRequest(spec=spec()))).verdict
        assert (told.admitted, told.reason) == (False, "QUOTA_EXCEEDED")
        assert told.retry_after.ToNanoseconds() == pytest.approx(refused.retry_after_s * 1e9, rel=0.1)
        await bench.submit(request_id="one")  # nothing new
        assert await gatehouse.answer("other", "SubmitJob", submit("")) is None
        with pytest.raises(TriptychError) as caught:
            await gatehouse.call("other", "EstimateJob", pb.EstimateJobRequest(spec=spec()))
        assert caught.value.metadata["quota"] == "calls_per_s"
        assert 0 < (caught.value.retry_after_s or 0) <= 100
        assert await gatehouse.answer("other", "ListJobs", pb.ListJobsRequest()) is None
        with pytest.raises(TriptychError) as caught:
            await gatehouse.call("admin", "SubmitJob", submit(""))
        assert caught.value.metadata["quota"] == "max_queued_s"
        assert caught.value.retry_after_s is None  # alone it is too much
        await bench.encoder.gate.open()
