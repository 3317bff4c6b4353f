"""Bad input over the wire, pages, downloads and bounds of streams. `tests/unit/router` has every field."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest

from tests.integration.router.bench import CONFIG, WAIT_S, Bench, spec
from tests.natsd import NatsServer
from triptych.errors import Reason, TriptychError, from_rpc_error
from triptych.exchange import Exchange
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import JOB_STATE_CANCELLED, JOB_STATE_QUEUED, JOB_STATE_SUCCEEDED, Job


async def test_everything_that_is_wrong_is_named_at_once(bench: Bench) -> None:
    unprompted = spec(width=97, guidance="NaN", extra={"prompt": "x"})
    unprompted.ClearField("prompt")
    error = await bench.refusal(unprompted)
    assert error.reason is Reason.INVALID_FIELD
    assert {violation.field for violation in error.violations} == {
        "spec.width",
        "spec.prompt",
        "spec.guidance",
        "spec.extra.prompt",
    }
    assert not bench.encoder.calls


async def test_what_is_empty_is_not_what_is_unset(bench: Bench) -> None:
    """To the encoder, in the record that the next router reads, and for a repeated request."""
    empty = await bench.submit(spec(prompt="", negative_prompt=""), "empty")
    unset = await bench.submit(spec(), "unset")
    for job, is_set in ((empty, True), (unset, False)):
        await bench.until(job.job_id, "succeeded")
        [call] = bench.encoder.calls_of(job.job_id)
        assert call.spec.HasField("prompt")
        assert call.spec.HasField("negative_prompt") == is_set
    await bench.stop_router()
    await bench.start_router()
    assert (await bench.job(empty.job_id)).spec.HasField("negative_prompt")
    assert not (await bench.job(unset.job_id)).spec.HasField("negative_prompt")
    assert (await bench.refusal(spec(negative_prompt=""), "unset")).reason is Reason.REQUEST_ID_REUSED
    assert (await bench.submit(spec(prompt="", negative_prompt=""), "empty")).job_id == empty.job_id


async def test_models_are_known_by_name(bench: Bench) -> None:
    assert (await bench.refusal(spec(model="nothing"))).reason is Reason.MODEL_UNKNOWN
    assert (await bench.refusal(spec(model=""))).violations[0].field == "spec.model"


async def test_a_deadline_in_the_past(bench: Bench) -> None:
    late = spec()
    late.deadline.seconds = 1
    assert (await bench.refusal(late)).violations[0].field == "spec.deadline"


async def test_attachments_reach_the_encoder_and_no_client(bench: Bench, red_png: bytes) -> None:
    job = spec()
    job.attachments.add(role=1, media_type="image/png", data=red_png)
    accepted = await bench.submit(job)
    assert accepted.spec.attachments[0].data == b""
    await bench.events(accepted.job_id)
    assert bench.encoder.calls[0].spec.attachments[0].data == red_png


async def test_attachments_outlive_the_router(bench: Bench, red_png: bytes) -> None:
    bench.encoder.gate.close()
    job = spec()
    job.attachments.add(role=1, media_type="image/png", data=red_png)
    accepted = await bench.submit(job)
    await bench.stop_router()
    await bench.encoder.gate.open()
    await bench.start_router()
    await bench.events(accepted.job_id)
    assert bench.encoder.calls_of(accepted.job_id)[-1].spec.attachments[0].data == red_png


async def list_all(bench: Bench, page_size: int, states: list[int]) -> list[list[Job]]:
    pages, token = [], ""
    while True:
        request = pb.ListJobsRequest(page_size=page_size, page_token=token, states=states)
        page = await bench.stub.ListJobs(request)
        pages.append(list(page.jobs))
        token = page.next_page_token
        if not token:
            return pages


async def test_jobs_are_listed_newest_first_in_pages(bench: Bench) -> None:
    bench.encoder.gate.close()
    jobs = [await bench.submit(spec(prompt=f"number {index}")) for index in range(5)]
    await bench.cancel(jobs[1].job_id)
    newest_first = [job.job_id for job in reversed(jobs)]
    for page_size in (1, 2, 5, 50):
        pages = await list_all(bench, page_size, [])
        assert [job.job_id for page in pages for job in page] == newest_first
        assert all(len(page) <= page_size for page in pages)
    [cancelled] = await list_all(bench, 0, [JOB_STATE_CANCELLED])
    assert [job.job_id for job in cancelled] == [jobs[1].job_id]
    assert sum(map(len, await list_all(bench, 2, [JOB_STATE_QUEUED, JOB_STATE_SUCCEEDED]))) == 4


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.ListJobsRequest(page_size=1001), "page_size"),
        (pb.ListJobsRequest(page_token="next, please"), "page_token"),
        (pb.ListJobsRequest(states=[77]), "states[0]"),  # type: ignore[list-item]
    ],
)
async def test_bad_pages(bench: Bench, request_: pb.ListJobsRequest, field: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await bench.stub.ListJobs(request_)
    assert from_rpc_error(caught.value).violations[0].field == field


async def test_outputs_that_are_not_there(bench: Bench) -> None:
    bench.decoder.gate.close()
    job = await bench.submit()
    await bench.decoder.gate.reached()
    assert await why_not(bench, job.job_id, 0) is Reason.OUTPUT_NOT_READY
    assert await why_not(bench, job.job_id, 1) is Reason.OUTPUT_UNKNOWN
    await bench.decoder.gate.open()
    await bench.events(job.job_id)
    await bench.exchange.delete((await bench.job(job.job_id)).outputs[0].data)
    assert await why_not(bench, job.job_id, 0) is Reason.OUTPUT_GONE


async def why_not(bench: Bench, job_id: str, index: int) -> Reason:
    with pytest.raises(TriptychError) as caught:
        await bench.download(job_id, index)
    return caught.value.reason


@pytest.fixture
async def two_streams(nats_server: NatsServer, exchange: Exchange) -> AsyncIterator[Bench]:
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router(replace(CONFIG, max_streams=2))
        yield bench


async def test_streams_are_bounded(two_streams: Bench) -> None:
    bench = two_streams
    bench.encoder.gate.close()
    job = await bench.submit()
    watching = [bench.watch(job.job_id) for _ in range(2)]
    for watch in watching:
        await anext(watch)
    with pytest.raises(TriptychError) as caught:
        await bench.events(job.job_id)
    assert caught.value.reason is Reason.TOO_MANY_STREAMS
    await bench.encoder.gate.open()
    for watch in watching:
        assert [event async for event in watch][-1].HasField("succeeded")
    assert await bench.events(job.job_id)


async def test_who_does_not_read_keeps_no_other_from_downloading(nats_server: NatsServer, exchange: Exchange) -> None:
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        bench.decoder.file_bytes = 24 * 2**20
        await bench.start_router(replace(CONFIG, max_downloads=1, download_stall_s=0.3))
        job = await bench.submit()
        await bench.events(job.job_id)
        stalled = bench.stub.DownloadOutput(pb.DownloadOutputRequest(job_id=job.job_id), timeout=WAIT_S * 2)
        assert (await stalled.read()).HasField("output")
        assert len(await asyncio.wait_for(bench.download(job.job_id), WAIT_S)) == bench.decoder.file_bytes
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read_on(stalled)
        assert from_rpc_error(caught.value).reason is Reason.TOO_MANY_STREAMS


async def read_on(stream: Any) -> None:
    """To its end."""
    while await stream.read() is not grpc.aio.EOF:
        pass


async def test_attachments_that_wait_are_bounded(nats_server: NatsServer, exchange: Exchange, red_png: bytes) -> None:
    job = spec()
    job.attachments.add(role=1, media_type="image/png", data=red_png)
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router(replace(CONFIG, max_attachment_bytes=len(red_png) * 2 - 1))
        bench.encoder.gate.close()
        first = await bench.submit(job)
        assert (await bench.refusal(job)).reason is Reason.QUEUE_FULL
        await bench.submit()
        await bench.encoder.gate.open()
        await bench.events(first.job_id)
        await bench.events((await bench.submit(job)).job_id)
