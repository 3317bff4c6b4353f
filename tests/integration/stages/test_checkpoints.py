"""A job begun in one process and finished in another is the same job, bit for bit."""

import asyncio
import json
from pathlib import Path
from typing import Any

import diffusers
import grpc
import numpy as np
import torch

from tests.integration.stages.cases import CASES, SAMPLERS, case_spec
from tests.integration.stages.conftest import Workers, all_ready
from tests.integration.stages.stage_calls import StageCalls, bits, job
from tests.stock import StockPipelines, frames_of
from tests.tiny_checkpoints import NAMES, write_catalog
from tests.workers import WorkerProcess
from triptych.errors import Reason, TriptychError, from_rpc_error
from triptych.exchange import Exchange
from triptych.rpc import open_channel
from triptych.v1.denoiser_service_pb2 import DenoiseRequest
from triptych.v1.denoiser_service_pb2_grpc import DenoiserServiceStub
from triptych.v1.encoder_service_pb2 import EncodeResponse
from triptych.v1.job_pb2 import Attachment, Checkpoint, JobSpec, Latents

STEPS = 100


async def test_a_job_goes_on_in_another_process(calls: StageCalls, workers: Workers, exchange: Exchange) -> None:
    spec = job("sdxl", step_count=STEPS)
    encoded = await calls.encode(spec)
    other = workers.another(
        "denoiser", "denoiser-2", "--models=sdxl", "--checkpoint_seconds=0.01", "--progress_seconds=0"
    )
    other.start()
    await all_ready(workers.nats.url, [other])
    checkpoint = await checkpoint_of(other.address, calls, spec, encoded, exchange)
    other.kill()
    assert 0 < checkpoint.step < STEPS
    steps, resumed = await denoised(calls, spec, encoded, checkpoint)
    assert steps == list(range(checkpoint.step, STEPS + 1))
    _, whole = await denoised(calls, spec, encoded)
    assert await bits(exchange, resumed) == await bits(exchange, whole)
    await left_aside(calls, spec, encoded, checkpoint, exchange)


async def test_a_worker_that_ends_hands_back_what_it_cannot_finish(
    calls: StageCalls, workers: Workers, exchange: Exchange
) -> None:
    """What runs, after a checkpoint at its next step; what waits, at once. It does not use up the time to drain."""
    spec = job("sdxl", step_count=1000)
    encoded = await calls.encode(spec)
    flags = ("--models=sdxl", "--checkpoint_seconds=1000", "--progress_seconds=0", "--drain_seconds=0.5")
    ending = workers.another("denoiser", "denoiser-3", *flags)
    ending.start()
    await all_ready(workers.nats.url, [ending])
    async with open_channel(ending.address) as channel:
        stub = DenoiserServiceStub(channel)
        request = DenoiseRequest(call=calls.call(), spec=spec, conditioning=encoded.conditioning)
        running = stub.Denoise(request)
        while not (await running.read()).progress.step > 2:  # type: ignore[union-attr]
            pass
        behind = DenoiseRequest(call=calls.call(rank=2.0), spec=spec, conditioning=encoded.conditioning)
        waiting = stub.Denoise(behind)
        ended = asyncio.create_task(asyncio.to_thread(ending.terminate))
        checkpoints, error = await told(running)
        assert error.reason is Reason.DRAINING
        (checkpoint,) = checkpoints
        checkpoints, error = await told(waiting)
        assert (checkpoints, error.reason) == ([], Reason.DRAINING)
    assert await ended == 0
    assert await exchange.exists(checkpoint.data)
    steps, _ = await denoised(calls, spec, encoded, checkpoint)
    assert steps[0] == checkpoint.step > 2


async def told(stream: Any) -> tuple[list[Checkpoint], TriptychError]:
    """The checkpoints, and the error that ended the call."""
    checkpoints = []
    try:
        while (event := await stream.read()) is not grpc.aio.EOF:
            if event.HasField("checkpoint"):
                checkpoints.append(event.checkpoint)
    except grpc.aio.AioRpcError as error:
        return checkpoints, from_rpc_error(error)
    raise AssertionError("it ended in order")


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


async def test_every_model_and_sampler_goes_on_in_another_process(
    calls: StageCalls, workers: Workers, exchange: Exchange, picture: Attachment, tiny_checkpoints: Path, tmp_path: Path
) -> None:
    """From the process that was killed to another one, decoded in a third: nothing differs from the stock pipeline."""
    torch.set_num_threads(1)
    catalog, stock = write_variants(tiny_checkpoints, tmp_path), StockPipelines(tmp_path)
    jobs = [(spec.model, spec) for spec in (case_spec(case, picture, step_count=24) for case in CASES)]
    # A sampler is the denoiser's alone: the other stages have SDXL as it is.
    jobs += [(sampler, case_spec("sdxl", step_count=24)) for sampler in SAMPLERS]
    first, other = [
        WorkerProcess("denoiser", f"variants-{index}", catalog, workers.nats.url, tmp_path, "--checkpoint_seconds=0.02")
        for index in range(2)
    ]
    for process in (first, other):
        process.start()
    await all_ready(workers.nats.url, [first, other])
    addresses = {stage: process.address for stage, process in workers.processes.items()}
    async with StageCalls({**addresses, "denoiser": other.address}, exchange, calls.epoch) as variants:
        begun = []
        for model, spec in jobs:
            encoded, spec.model = await variants.encode(spec), model
            checkpoint = await checkpoint_of(first.address, variants, spec, encoded, exchange, count=1)
            begun.append((encoded, checkpoint))
        first.kill()
        differences = []
        for (model, spec), (encoded, checkpoint) in zip(jobs, begun, strict=True):
            steps, latents = await denoised(variants, spec, encoded, checkpoint)
            assert steps[0] >= checkpoint.step > 0
            want = stock.frames(spec)
            spec.model = model if model not in SAMPLERS else "sdxl"
            got = frames_of(await variants.file(await variants.decode(spec, encoded, latents)))
            assert want.std() > 1, "a flat picture would prove nothing"
            differences.append(float(np.abs(got.astype(int) - want).max()))
    assert other.terminate() == 0
    assert differences == [0.0] * len(jobs)


def write_variants(checkpoints: Path, folder: Path) -> Path:
    """A catalog of the tiny checkpoints, and of SDXL's with every other sampler."""
    for name in NAMES:
        (folder / name).symlink_to(checkpoints / name)
    for variant, (sampler, options) in SAMPLERS.items():
        (folder / variant).mkdir()
        for part in (checkpoints / "sdxl").iterdir():
            if part.name not in ("scheduler", "model_index.json"):
                (folder / variant / part.name).symlink_to(part)
        stock = diffusers.EulerDiscreteScheduler.from_pretrained(checkpoints / "sdxl", subfolder="scheduler")
        scheduler = getattr(diffusers, sampler).from_config(stock.config, **options)
        scheduler.save_pretrained(folder / variant / "scheduler")
        index = json.loads((checkpoints / "sdxl" / "model_index.json").read_text())
        index["scheduler"] = ["diffusers", sampler]
        (folder / variant / "model_index.json").write_text(json.dumps(index))
    return write_catalog(folder, (*NAMES, *SAMPLERS))


async def checkpoint_of(
    address: str, calls: StageCalls, spec: JobSpec, encoded: EncodeResponse, exchange: Exchange, count: int = 3
) -> Checkpoint:
    """The third checkpoint of a job, or that of another count; then the job is given up."""
    async with open_channel(address) as channel:
        request = DenoiseRequest(call=calls.call(), spec=spec, conditioning=encoded.conditioning)
        stream = DenoiserServiceStub(channel).Denoise(request)
        async for event in stream:
            count -= event.HasField("checkpoint")
            if not count:
                # A copy: until the job has heard that it is given up, it may drop this one for later ones.
                event.checkpoint.data.CopyFrom(await exchange.put("latents", await exchange.get(event.checkpoint.data)))
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
