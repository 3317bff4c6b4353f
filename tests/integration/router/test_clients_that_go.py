"""Clients that leave a GenerateMedia call: whose jobs end with them, and what their request ids mean afterwards."""

import signal
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.router.store.records import JobStore
from tests.integration.router.bench import Bench, check_log, kinds, spec
from tests.integration.router.peers import DecoderPeer
from tests.integration.router.process import RouterProcess
from tests.natsd import NatsServer
from triptych.errors import Reason, from_rpc_error
from triptych.exchange import Exchange
from triptych.rpc.typing import Context
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.decoder_service_pb2 import DecodeRequest, DecodeResponse
from triptych.v1.job_pb2 import JOB_STATE_CANCELLED, JOB_STATE_RUNNING, Job, JobSpec


async def begun(bench: Bench, request_id: str, job: JobSpec | None = None) -> tuple[Any, Job]:
    """A GenerateMedia call and its job."""
    call = bench.stub.GenerateMedia(pb.GenerateMediaRequest(spec=job or spec(), request_id=request_id))
    return call, (await call.read()).accepted


async def end(call: Any) -> str:
    """Read the call to its end; the kind of its job's last event."""
    last = ""
    while (response := await call.read()) is not grpc.aio.EOF:
        last = response.job_event.WhichOneof("event") or last
    return last


async def left(bench: Bench, request_id: str) -> Job:
    """A job whose client left, once that has ended it."""
    call, job = await begun(bench, request_id)
    call.cancel()
    assert (await bench.events(job.job_id))[-1].cancelled.reason == "CLIENT_GONE"
    return job


async def test_a_submitted_job_outlives_a_stream_of_its_request(bench: Bench) -> None:
    bench.denoiser.gate.close()
    job = await bench.submit(request_id="once")
    call, again = await begun(bench, "once")
    assert again.job_id == job.job_id
    call.cancel()
    await left(bench, "later")
    await bench.denoiser.gate.open()
    check_log(await bench.events(job.job_id))


async def test_a_job_that_is_submitted_while_it_is_streamed_outlives_the_stream(bench: Bench) -> None:
    bench.denoiser.gate.close()
    call, job = await begun(bench, "once")
    assert (await bench.submit(request_id="once")).job_id == job.job_id
    stored = await JobStore(bench.exchange).read(job.tenant, job.job_id)
    assert stored is not None
    assert not stored.record.streamed
    call.cancel()
    await left(bench, "later")
    await bench.denoiser.gate.open()
    check_log(await bench.events(job.job_id))


async def test_a_router_that_is_killed_remembers_what_was_submitted(
    nats_server: NatsServer, exchange: Exchange, tmp_path: Path
) -> None:
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        bench.denoiser.gate.close()
        async with RouterProcess(nats_server.url, tmp_path / "router") as router:
            await bench.connect(router.address)
            await bench.fleet_has({peer.worker_id for peer in bench.peers})
            _, kept = await begun(bench, "kept")
            _, gone = await begun(bench, "gone", spec(seed=20))
            await bench.submit(request_id="kept")
            await router.end(signal.SIGKILL)
        async with RouterProcess(nats_server.url, tmp_path / "router", disconnect_grace_s="0.3") as router:
            await bench.connect(router.address)
            await router.until("client_not_back")
            await bench.denoiser.gate.open()
            check_log(await bench.events(kept.job_id))
            assert (await bench.events(gone.job_id))[-1].cancelled.reason == "CLIENT_GONE"
            assert router.logged("client_not_back") == 1


async def test_a_job_lives_as_long_as_one_of_its_streams(bench: Bench) -> None:
    bench.denoiser.gate.close()
    first, job = await begun(bench, "shared")
    second, _ = await begun(bench, "shared")
    first.cancel()
    await left(bench, "later")
    assert not (await bench.job(job.job_id)).HasField("end_time")
    second.cancel()
    assert kinds(await bench.events(job.job_id))[-1] == "cancelled"


async def test_who_comes_back_begins_a_new_job_of_any_payload(bench: Bench) -> None:
    bench.denoiser.gate.close()
    first = await left(bench, "mine")
    assert (await bench.job(first.job_id)).cancel_reason == "CLIENT_GONE"
    await bench.stop_router()
    await bench.denoiser.gate.open()
    await bench.start_router()
    other = spec(prompt="another")
    call, second = await begun(bench, "mine", other)
    assert second.job_id != first.job_id
    assert await end(call) == "succeeded"
    assert (await bench.submit(other, "mine")).job_id == second.job_id
    assert (await bench.refusal(spec(), "mine")).reason is Reason.REQUEST_ID_REUSED


async def test_a_router_that_died_before_it_summed_up_the_cancel_leaves_the_id_free(bench: Bench) -> None:
    first = await left(bench, "mine")
    await bench.stop_router()
    store = JobStore(bench.exchange)
    stored = await store.read(first.tenant, first.job_id)
    assert stored is not None
    stored.record.job.CopyFrom(first)
    await store.write(stored.record, stored.revision)
    await bench.start_router()
    second = await bench.submit(request_id="mine")
    check_log(await bench.events(second.job_id))
    assert (await bench.job(first.job_id)).cancel_reason == "CLIENT_GONE"
    assert (await bench.submit(request_id="mine")).job_id == second.job_id


async def test_who_comes_back_at_once_has_a_job_that_is_made(bench: Bench) -> None:
    """Whether it comes before the first call is known to be over, while its job ends, or after that."""
    bench.denoiser.gate.close()
    for turn in range(5):
        call, _ = await begun(bench, f"turn-{turn}")
        call.cancel()
        job = await bench.submit(request_id=f"turn-{turn}")
        await bench.denoiser.gate.open()
        check_log(await bench.events(job.job_id))
        bench.denoiser.gate.close()


async def test_a_cancel_that_was_asked_for_holds(bench: Bench) -> None:
    bench.denoiser.gate.close()
    call, job = await begun(bench, "mine")
    assert (await bench.cancel(job.job_id)).cancel_reason == ""
    assert await end(call) == "cancelled"
    again = await bench.submit(request_id="mine")
    assert (again.job_id, again.state) == (job.job_id, JOB_STATE_CANCELLED)


class ForgetfulDecoder(DecoderPeer):
    """Its first outputs are lost before they are told of."""

    async def Decode(self, request: DecodeRequest, context: Context) -> DecodeResponse:
        response = await super().Decode(request, context)
        if request.latents.output_index == 0:
            await self._exchange.delete(response.output.data)
        return response


async def test_a_call_that_the_router_ends_may_be_made_again(bench: Bench) -> None:
    await bench.decoder.die()
    await bench.fleet_lacks("decoder-0")
    decoder = ForgetfulDecoder(bench.exchange, "forgetful", slots=4)
    await bench.add(decoder)
    await decoder.gate.open(1)
    call, job = await begun(bench, "broken", spec(output_count=2))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await end(call)
    assert from_rpc_error(caught.value).reason is Reason.OUTPUT_GONE
    await left(bench, "later")
    again = await bench.submit(spec(output_count=2), "broken")
    assert (again.job_id, again.state) == (job.job_id, JOB_STATE_RUNNING)
    await decoder.gate.open()
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
