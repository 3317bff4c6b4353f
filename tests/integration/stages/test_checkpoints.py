"""A job begun in one process and finished in another is the same job, bit for bit."""

from tests.integration.stages.conftest import Workers, all_ready
from tests.integration.stages.stage_calls import StageCalls, job
from triptych.exchange import Exchange, TensorData
from triptych.rpc import open_channel
from triptych.v1.denoiser_service_pb2 import DenoiseRequest
from triptych.v1.denoiser_service_pb2_grpc import DenoiserServiceStub
from triptych.v1.encoder_service_pb2 import EncodeResponse
from triptych.v1.job_pb2 import Checkpoint, JobSpec, Latents

STEPS = 200


async def test_a_job_goes_on_in_another_process(calls: StageCalls, workers: Workers, exchange: Exchange) -> None:
    spec = job("sdxl", step_count=STEPS)
    encoded = await calls.encode(spec)
    other = workers.another(
        "denoiser", "denoiser-2", "--models=sdxl", "--checkpoint_seconds=0.01", "--progress_seconds=0"
    )
    other.start()
    await all_ready(workers.nats.url, [other])
    checkpoint = await checkpoint_of(other.address, calls, spec, encoded)
    other.kill()
    assert 0 < checkpoint.step < STEPS
    steps, resumed = await denoised(calls, spec, encoded, checkpoint)
    assert steps == list(range(checkpoint.step, STEPS + 1))
    _, whole = await denoised(calls, spec, encoded)
    assert await bits(exchange, resumed) == await bits(exchange, whole)
    await left_aside(calls, spec, encoded, checkpoint, exchange)


async def left_aside(
    calls: StageCalls, spec: JobSpec, encoded: EncodeResponse, checkpoint: Checkpoint, exchange: Exchange
) -> None:
    """What is of another model, of other numerics, or gone, is not used: the job begins at the beginning."""
    for wrong in (
        {"fingerprint": "another"},
        {"numerics_id": "another"},
    ):
        strange = Checkpoint()
        strange.CopyFrom(checkpoint)
        for name, value in wrong.items():
            setattr(strange, name, value)
        steps, _ = await denoised(calls, spec, encoded, strange)
        assert steps[0] == 1
    await exchange.delete(checkpoint.data)
    steps, _ = await denoised(calls, spec, encoded, checkpoint)
    assert steps[0] == 1


async def checkpoint_of(address: str, calls: StageCalls, spec: JobSpec, encoded: EncodeResponse) -> Checkpoint:
    """The third checkpoint of a job, which is then given up."""
    async with open_channel(address) as channel:
        request = DenoiseRequest(call=calls.call(), spec=spec, conditioning=encoded.conditioning)
        stream = DenoiserServiceStub(channel).Denoise(request)
        count = 0
        async for event in stream:
            count += event.HasField("checkpoint")
            if count == 3:
                stream.cancel()
                return event.checkpoint
    raise AssertionError("it ended before")


async def denoised(
    calls: StageCalls, spec: JobSpec, encoded: EncodeResponse, checkpoint: Checkpoint | None = None
) -> tuple[list[int], Latents]:
    """The steps that were run, and the latents."""
    request = DenoiseRequest(call=calls.call(), spec=spec, conditioning=encoded.conditioning, checkpoint=checkpoint)
    steps, latents = [], Latents()
    async for event in calls.denoiser.Denoise(request):
        if event.HasField("progress"):
            steps.append(event.progress.step)
        if event.HasField("latents"):
            latents = event.latents
    return steps, latents


async def bits(exchange: Exchange, latents: Latents) -> bytes:
    value = (await exchange.get(latents.data))["latents"].value
    assert isinstance(value, TensorData)
    return bytes(value.data)
