"""Too much work: long jobs are refused with reason, figures and a time to come back; short ones still get in."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status

from services.router.core.config import PoolConfig, SchedulerConfig
from tests.integration.router.bench import CONFIG, Bench, kinds, spec
from tests.natsd import NatsServer
from triptych.errors import Reason
from triptych.exchange import Exchange
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import JOB_STATE_QUEUED

POOL = PoolConfig(name="all", max_backlog_s=2.0, max_job_s=8.0, borrow="idle")
LONG = spec(step_count=100)  # about 4 s by the catalog's prices


@pytest.fixture
async def bench(nats_server: NatsServer, exchange: Exchange) -> AsyncIterator[Bench]:
    """One pool with little patience, whose one denoiser is busy with a long job."""
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers(slots=1)
        await bench.start_router(replace(CONFIG, scheduler=SchedulerConfig(pools=(POOL,), max_queued_jobs=4)))
        bench.denoiser.gate.close()
        await bench.submit(LONG)
        await bench.denoiser.gate.reached()
        yield bench


async def test_long_jobs_are_shed_and_short_ones_taken(bench: Bench) -> None:
    error = await bench.refusal(LONG)
    assert error.reason is Reason.OVERLOADED
    assert float(error.metadata["estimate_s"]) == pytest.approx(4.0, rel=0.3)
    assert float(error.metadata["backlog_s"]) > float(error.metadata["limit_s"])
    assert error.metadata["pool"] == "all"
    assert error.retry_after_s is not None
    assert error.retry_after_s > 0
    short = await bench.submit()
    assert short.state == JOB_STATE_QUEUED
    await bench.denoiser.gate.open()
    assert kinds(await bench.events(short.job_id))[-1] == "succeeded"


async def test_what_was_refused_leaves_no_trace(bench: Bench) -> None:
    await bench.refusal(LONG, "again")
    jobs = (await bench.stub.ListJobs(pb.ListJobsRequest())).jobs
    assert len(jobs) == 1
    await bench.denoiser.gate.open()
    await bench.events(jobs[0].job_id)
    assert (await bench.submit(LONG, "again")).state == JOB_STATE_QUEUED


async def test_the_verdict_is_told_before(bench: Bench) -> None:
    verdict = (await bench.stub.EstimateJob(pb.EstimateJobRequest(spec=LONG))).verdict
    assert (verdict.admitted, verdict.reason, verdict.pool) == (False, "OVERLOADED", "all")
    assert verdict.retry_after.ToNanoseconds() > 0
    assert (await bench.stub.EstimateJob(pb.EstimateJobRequest(spec=spec()))).verdict.admitted


async def test_a_job_longer_than_any_pool_takes(bench: Bench) -> None:
    error = await bench.refusal(spec(step_count=100, output_count=4))
    assert error.reason is Reason.TOO_LONG
    assert error.retry_after_s is None


async def test_a_deadline_that_cannot_be_met(bench: Bench) -> None:
    # Less than it takes by itself.
    by_the_clock, from_now = spec(), spec(finish_within="0.1s")
    by_the_clock.deadline.FromNanoseconds(time.time_ns() + 100_000_000)
    for soon in (by_the_clock, from_now):
        error = await bench.refusal(soon)
        assert error.reason is Reason.DEADLINE_UNREACHABLE
        assert error.retry_after_s is None
        verdict = (await bench.stub.EstimateJob(pb.EstimateJobRequest(spec=soon))).verdict
        assert verdict.reason == "DEADLINE_UNREACHABLE"
        assert not verdict.HasField("retry_after")


async def test_a_full_queue(bench: Bench) -> None:
    for index in range(3):
        await bench.submit(spec(step_count=1, prompt=f"short {index}"))
    error = await bench.refusal(spec(step_count=1))
    assert error.reason is Reason.QUEUE_FULL
    assert error.retry_after_s is not None


async def test_a_client_that_knows_nothing_but_reflection_understands(bench: Bench) -> None:
    code, details = await asyncio.to_thread(submit_by_reflection, bench.address)
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details["google.rpc.ErrorInfo"].reason == "OVERLOADED"
    assert details["google.rpc.ErrorInfo"].domain == "triptych"
    assert details["google.rpc.RetryInfo"].retry_delay.ToNanoseconds() > 0


def submit_by_reflection(address: str) -> tuple[grpc.StatusCode, dict[str, Any]]:
    """Submit the long job with what the server tells of itself; the status and its details by type."""
    with grpc.insecure_channel(address) as channel:
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        method = pool.FindServiceByName("triptych.v1.RouterService").FindMethodByName("SubmitJob")
        request = GetMessageClass(method.input_type)(spec={"model": "shapes", "prompt": "a circle", "step_count": 100})
        submit = channel.unary_unary(
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        try:
            submit(request, timeout=10)
        except grpc.RpcError as error:
            status = rpc_status.from_call(error)
            found: dict[str, Any] = {}
            for packed in status.details:
                kind = getattr(error_details_pb2, packed.type_url.rpartition(".")[2])()
                packed.Unpack(kind)
                found[packed.type_url.rpartition("/")[2]] = kind
            return error.code(), found
        raise AssertionError("it was accepted")
