"""Yield points: a better-ranked job runs between two blocks, and nobody's result changes."""

import asyncio
import threading
from pathlib import Path

import pytest
import torch

from services.stage.checkpoint import DENOISE
from services.stage.device_thread import DeviceThread
from services.stage.yield_points import add_yield_points
from tests.unit.denoiser.denoising_bench import DenoisingBench, Watching, bits, run, spec

BLOCKS = {"sdxl": 34, "flux": 4, "sd3": 2, "wan": 2}


@pytest.mark.parametrize("name", BLOCKS)
async def test_a_better_ranked_job_runs_between_two_blocks(
    tiny_checkpoints: Path, thread: DeviceThread, name: str
) -> None:
    bench = DenoisingBench(tiny_checkpoints, name)
    long, short = spec(name, 1, 4), spec(name, 2, 2)
    log: list[str] = []
    alone = [bits(await run(thread, bench.work(job, Watching()))) for job in (long, short)]
    reached, go = threading.Event(), threading.Event()
    seen = 0

    def before_block() -> None:
        nonlocal seen
        seen += 1
        if seen == BLOCKS[name] + 2:  # in the middle of the second forward
            log.append("long between blocks")
            reached.set()
            go.wait(20)
        thread.give_way()

    counts = [add_yield_points(network, before_block) for network in bench.model.block(DENOISE).networks.values()]
    assert sum(counts) == BLOCKS[name]
    work = {job.seed: bench.work(job, Watching(label, log)) for job, label in ((long, "long"), (short, "short"))}
    running = asyncio.create_task(run(thread, work[long.seed], rank=9.0))
    await asyncio.to_thread(reached.wait, 20)
    better = asyncio.create_task(run(thread, work[short.seed], rank=1.0))
    await asyncio.sleep(0)
    go.set()
    made = [bits(bundle) for bundle in await asyncio.gather(running, better)]
    # The whole short job ran between two blocks of one step of the long one.
    place = log.index("long between blocks")
    assert log[place + 1 : place + 4] == ["short step 0", "short step 1", "short step 2"]
    assert log[place + 4].startswith("long step")
    assert made == alone


def test_blocks_are_told_by_structure() -> None:
    """A list may have gaps, and layers of a feed-forward are no blocks."""
    layers = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    block = torch.nn.Sequential(torch.nn.Linear(2, 2), layers[0], layers[1])
    blocks = torch.nn.ModuleList([None, block])  # type: ignore[list-item]
    seen: list[int] = []
    assert add_yield_points(torch.nn.ModuleDict({"blocks": blocks, "layers": layers}), lambda: seen.append(1)) == 1
    blocks[1](torch.ones(2))
    assert seen == [1]
