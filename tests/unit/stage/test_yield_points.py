"""Yield points: a better-ranked job runs between two blocks, and nobody's result changes."""

import asyncio
import threading
from pathlib import Path

import pytest
import torch

from services.denoiser.denoise_work import DenoiseWork
from services.denoiser.yield_points import add_yield_points
from services.stage.checkpoint import DENOISE, Checkpoint
from services.stage.device_thread import DeviceThread
from services.stage.hosted_model import HostedModel
from services.stage.job_inputs import guidance
from services.stage.tensors import to_bundle
from triptych.exchange import Bundle
from triptych.v1.job_pb2 import JobSpec

CPU = torch.device("cpu")
BLOCKS = {"sdxl": 34, "flux": 4, "sd3": 2, "wan": 2}


def spec(model: str, seed: int, step_count: int) -> JobSpec:
    frames = 9 if model == "wan" else 0
    return JobSpec(
        model=model,
        prompt="a red circle",
        seed=seed,
        step_count=step_count,
        guidance=3.0,
        width=64,
        height=64,
        frame_count=frames,
        output_count=1,
    )


def text_of(model: HostedModel, job: JobSpec) -> Bundle:
    """The job's conditioning, from the stock text block."""
    block = model.block("text_encoder")
    return to_bundle(block.outputs(block.run(block.fork(guidance(job)), {}, model.inputs(job))))


def bits(bundle: Bundle) -> list[bytes]:
    return [bytes(entry.value.data) for entry in bundle.values()]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", BLOCKS)
async def test_a_better_ranked_job_runs_between_two_blocks(tiny_checkpoints: Path, name: str) -> None:
    torch.set_num_threads(1)
    model = HostedModel(Checkpoint(name, str(tiny_checkpoints / name)), ["text_encoder", DENOISE], torch.float32, CPU)
    thread = DeviceThread("device")
    thread.start()
    long, short = spec(name, 1, 4), spec(name, 2, 2)
    texts = {job.seed: await thread.run((0.0, ""), lambda job=job: text_of(model, job)) for job in (long, short)}
    log: list[str] = []
    reached, go = threading.Event(), threading.Event()

    def work(job: JobSpec, label: str) -> DenoiseWork:
        def on_step(step: int, step_count: int) -> None:
            log.append(f"{label} step {step}")

        return DenoiseWork(model, job, 0, [texts[job.seed]], thread.give_way, on_step)

    alone = {
        job.seed: await thread.run((1.0, ""), lambda job=job: work(job, "alone").run(thread)) for job in (long, short)
    }
    log.clear()
    seen = 0

    def before_block() -> None:
        nonlocal seen
        seen += 1
        if seen == BLOCKS[name] + 2:  # in the middle of the second forward
            log.append("long between blocks")
            reached.set()
            go.wait(20)
        thread.give_way()

    counts = [add_yield_points(network, before_block) for network in model.block(DENOISE).networks.values()]
    assert sum(counts) == BLOCKS[name]
    running = asyncio.create_task(thread.run((9.0, "long"), lambda: work(long, "long").run(thread)))
    await asyncio.to_thread(reached.wait, 20)
    better = asyncio.create_task(thread.run((1.0, "short"), lambda: work(short, "short").run(thread)))
    await asyncio.sleep(0)
    go.set()
    (long_latents, long_s), (short_latents, _) = await asyncio.gather(running, better)
    thread.close()
    # The whole short job ran between two blocks of one step of the long one.
    place = log.index("long between blocks")
    assert log[place + 1 : place + 4] == ["short step 0", "short step 1", "short step 2"]
    assert log[place + 4].startswith("long step")
    assert bits(long_latents) == bits(alone[long.seed][0])
    assert bits(short_latents) == bits(alone[short.seed][0])
    assert long_s > 0
