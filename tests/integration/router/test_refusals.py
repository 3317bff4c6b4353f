"""Workers that cannot serve a model: clients hear why, at once, and accepted jobs do not wait for ever."""

from dataclasses import replace

import pytest

from tests.integration.router.bench import CONFIG, Bench, kinds, spec
from tests.integration.router.peer import Peer
from tests.integration.router.peers import DecoderPeer, DenoiserPeer, EncoderPeer
from tests.natsd import NatsServer
from triptych.errors import Reason, TriptychError, from_status
from triptych.exchange import Exchange
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import STAGE_DENOISE

WHY = "unet/model.safetensors is truncated: download it again"
KINDS: dict[str, type[Peer]] = {"encode": EncoderPeer, "denoise": DenoiserPeer, "decode": DecoderPeer}


async def refuse(bench: Bench, peer: Peer) -> None:
    """Have a worker say that it cannot serve the model, and wait until the router knows."""
    peer.refusal = WHY
    async for response in bench.stub.WatchFleet(pb.WatchFleetRequest(), timeout=10):
        if any(worker.worker_id == peer.worker_id and worker.refused_models for worker in response.snapshot.workers):
            return


async def settled_refusal(bench: Bench) -> TriptychError:
    """What a submit is refused with once the router has led for long enough to say."""
    while (error := await bench.refusal(spec())).reason is Reason.NOT_READY:
        pass
    return error


@pytest.mark.parametrize("stage", KINDS)
async def test_a_stage_that_cannot_serve_the_model_is_named_with_its_reason(bench: Bench, stage: str) -> None:
    [peer] = [peer for peer in bench.peers if isinstance(peer, KINDS[stage])]
    await refuse(bench, peer)
    error = await settled_refusal(bench)
    assert error.reason is Reason.MODEL_UNAVAILABLE
    assert error.message == f"The model shapes cannot be served; no worker can {stage}: {WHY}"
    assert error.metadata == {"workers": peer.worker_id}
    await bench.add(KINDS[stage](bench.exchange, "another"))
    assert kinds(await bench.events((await bench.submit()).job_id))[-1] == "succeeded"


async def test_models_and_fleet_tell_who_refuses_and_why(bench: Bench) -> None:
    await refuse(bench, bench.denoiser)
    models = (await bench.stub.ListModels(pb.ListModelsRequest())).models
    [refusals] = [model.refusals for model in models if model.refusals]
    assert [(each.stage, each.worker_id, each.reason) for each in refusals] == [(STAGE_DENOISE, "denoiser-0", WHY)]
    [worker] = [worker for worker in (await bench.fleet()).workers if worker.refused_models]
    assert [(each.name, each.reason) for each in worker.refused_models] == [("shapes", WHY)]


async def test_a_job_that_waits_for_such_a_stage_fails_with_the_reason(
    nats_server: NatsServer, exchange: Exchange
) -> None:
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router(replace(CONFIG, scheduler=replace(CONFIG.scheduler, absence_grace_s=0.5)))
        bench.encoder.gate.close()
        job = await bench.submit()
        await bench.until(job.job_id, "stage_started")
        await refuse(bench, bench.denoiser)
        await bench.encoder.gate.open(1)
        events = await bench.events(job.job_id)
        assert kinds(events) == ["queued", "stage_started", "encoded", "failed"]
        error = from_status(events[-1].failed.error)
        assert (error.reason, error.message) == (
            Reason.MODEL_UNAVAILABLE,
            f"no worker can denoise with shapes: {WHY}",
        )


async def test_a_job_waits_for_a_model_that_is_mended_in_time(bench: Bench) -> None:
    bench.encoder.gate.close()
    job = await bench.submit()
    await bench.until(job.job_id, "stage_started")
    await refuse(bench, bench.denoiser)
    await bench.encoder.gate.open(1)
    await bench.until(job.job_id, "encoded")
    bench.denoiser.refusal = ""
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"


async def test_a_worker_that_refuses_before_its_heartbeat_does(bench: Bench) -> None:
    other = DenoiserPeer(bench.exchange, "denoiser-1")
    bench.denoiser.beating = False
    bench.denoiser.errors.append(TriptychError(Reason.MODEL_UNAVAILABLE, WHY))
    job = await bench.submit()
    await bench.until(job.job_id, "requeued")
    await bench.add(other)
    assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
    assert other.steps[job.job_id] == 4
