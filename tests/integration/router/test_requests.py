"""One request is one job."""

import asyncio

import grpc
import pytest

from tests.integration.router.bench import Bench, kinds, spec
from triptych.durations import seconds_of
from triptych.errors import Reason
from triptych.v1 import router_service_pb2 as pb


async def test_the_same_request_again_is_the_same_job(bench: Bench) -> None:
    first = await bench.submit(request_id="once")
    assert (await bench.submit(request_id="once")).job_id == first.job_id
    await bench.events(first.job_id)
    assert (await bench.submit(request_id="once")).job_id == first.job_id
    assert len(bench.denoiser.calls) == 1


async def test_at_the_same_time_too(bench: Bench) -> None:
    jobs = await asyncio.gather(*(bench.submit(request_id="together") for _ in range(8)))
    assert len({job.job_id for job in jobs}) == 1
    await bench.events(jobs[0].job_id)
    assert len(bench.encoder.calls) == 1


async def test_another_payload_is_refused(bench: Bench) -> None:
    bench.encoder.gate.close()
    job = await bench.submit(request_id="mine")
    error = await bench.refusal(spec(prompt="another"), "mine")
    assert error.reason is Reason.REQUEST_ID_REUSED
    await bench.cancel(job.job_id)


async def test_a_restart_forgets_nothing(bench: Bench) -> None:
    done = await bench.submit(request_id="done")
    await bench.events(done.job_id)
    bench.encoder.gate.close()
    waiting = await bench.submit(request_id="waiting")
    await bench.stop_router()
    await bench.encoder.gate.open()
    await bench.start_router()
    assert (await bench.submit(request_id="done")).job_id == done.job_id
    assert (await bench.submit(request_id="waiting")).job_id == waiting.job_id
    assert (await bench.refusal(spec(prompt="another"), "done")).reason is Reason.REQUEST_ID_REUSED
    assert kinds(await bench.events(waiting.job_id))[-1] == "succeeded"


async def test_a_time_from_now_is_counted_from_the_first_of_equal_requests(bench: Bench) -> None:
    bench.denoiser.gate.close()
    asked = spec(finish_within="3600s")
    job = await bench.submit(asked, "timed")
    assert not job.spec.HasField("finish_within")
    assert 3599 < seconds_of(job.spec.deadline) - seconds_of(job.create_time) <= 3600
    await bench.stop_router()
    await bench.start_router()
    assert (await bench.submit(asked, "timed")).spec == job.spec
    assert (await bench.amend(job.job_id, 3)).spec.deadline == job.spec.deadline
    await bench.denoiser.gate.open()
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"


async def test_without_an_id_each_call_is_a_job(bench: Bench) -> None:
    assert (await bench.submit()).job_id != (await bench.submit()).job_id


async def test_malformed_request_ids_are_refused(bench: Bench) -> None:
    for request_id in ("a b", "a.b", "*", ">", "x" * 65, "é", "a/b"):
        error = await bench.refusal(spec(), request_id)
        assert [violation.field for violation in error.violations] == ["request_id"]


MALFORMED = ("", "*", ">", "a.b", "../etc", "ABCDEFGHJKMNPQRSTVWXYZ0123", "0" * 25, "0" * 27, "0" * 26 + "\n")


async def test_malformed_job_ids_are_refused_everywhere(bench: Bench) -> None:
    for job_id in MALFORMED:
        assert await codes(bench, job_id) == {grpc.StatusCode.INVALID_ARGUMENT}


async def test_unknown_jobs_are_said_to_be_unknown(bench: Bench) -> None:
    assert await codes(bench, "0" * 26) == {grpc.StatusCode.NOT_FOUND}


async def codes(bench: Bench, job_id: str) -> set[grpc.StatusCode]:
    """What each call that names a job answers."""
    calls = [
        bench.stub.GetJob(pb.GetJobRequest(job_id=job_id)),
        bench.stub.CancelJob(pb.CancelJobRequest(job_id=job_id)),
        bench.stub.WatchJob(pb.WatchJobRequest(job_id=job_id)).read(),
        bench.stub.DownloadOutput(pb.DownloadOutputRequest(job_id=job_id)).read(),
    ]
    found = set()
    for call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        found.add(caught.value.code())
    return found
