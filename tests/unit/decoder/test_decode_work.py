"""Decoding: in tiles where it must be; better-ranked decodes run in between, and nobody's pixels change."""

import asyncio
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from services.decoder.decode_work import DecodeWork
from services.stage.device_thread import DeviceThread
from services.stage.short_memory import run_twice
from tests.unit.decoder.decoding_bench import DecodingBench, pixels, run

SIDE = 512


class Gate:
    """Holds the device thread before a block once it is told at which, until it is let go."""

    def __init__(self, thread: DeviceThread) -> None:
        self._thread = thread
        self._reached, self._go = threading.Event(), threading.Event()
        self.count = 0
        self.hold_at: int | None = None

    def before_block(self) -> None:
        self.count += 1
        if self.count == self.hold_at:
            self._reached.set()
            assert self._go.wait(20)
        self._thread.give_way(in_forward=True)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 20)

    def let_go(self) -> None:
        self._go.set()


async def test_large_pictures_are_decoded_in_tiles_and_look_the_same(
    tiny_checkpoints: Path, thread: DeviceThread
) -> None:
    bench = DecodingBench(tiny_checkpoints, "sdxl", Gate(thread).before_block)
    whole = await run(thread, bench.work(0, SIDE))
    assert np.array_equal(await run(thread, bench.work(0, SIDE, tile_from_pixels=SIDE * SIDE + 1)), whole)
    tiled = await run(thread, bench.work(0, SIDE, tile_from_pixels=SIDE * SIDE))
    assert tiled.shape == whole.shape
    assert not np.array_equal(tiled, whole), "it was not tiled"
    assert np.abs(tiled - whole).mean() < 8
    # The next small one is whole again.
    assert np.array_equal(await run(thread, bench.work(0, SIDE)), whole)


@pytest.mark.parametrize("short", ["sdxl", "wan"])
async def test_a_better_ranked_decode_waits_for_one_chunk_of_a_video_at_most(
    tiny_checkpoints: Path, thread: DeviceThread, short: str
) -> None:
    """Of another model, or on the same VAE, which keeps the frames before on itself."""
    gate, log = Gate(thread), list[str]()
    video = DecodingBench(tiny_checkpoints, "wan", gate.before_block)
    other = video if short == "wan" else DecodingBench(tiny_checkpoints, short, gate.before_block)
    long, better = video.work(1, latent_frames=5), other.work(2, latent_frames=1)
    alone = [await run(thread, work) for work in (long, better)]
    chunk_blocks = await blocks_of_a_chunk(thread, video, gate)

    video.vae.decoder.register_forward_pre_hook(lambda module, inputs: log.append("chunk"))
    gate.hold_at = gate.count + 2 * chunk_blocks + chunk_blocks // 2
    running = asyncio.create_task(run(thread, long, rank=9.0))
    await gate.reached()
    assert log == ["chunk"] * 3, "in the middle of the third of five"
    short_run = asyncio.create_task(run(thread, better, rank=1.0, began=lambda: log.append("better")))
    await asyncio.sleep(0)
    gate.let_go()
    made = await asyncio.gather(running, short_run)
    assert log.index("better") - 3 <= 1
    assert log.count("chunk") == (6 if other is video else 5)
    assert all(np.array_equal(one, whole) for one, whole in zip(made, alone, strict=True))


async def test_any_number_of_decodes_on_one_vae_are_each_as_if_alone(
    tiny_checkpoints: Path, thread: DeviceThread
) -> None:
    """One begins at each of the first blocks of the one before: all lie paused in the middle of a chunk."""
    loop, started = asyncio.get_running_loop(), list["asyncio.Task[object]"]()

    def before_block() -> None:
        if len(started) < len(works):
            asyncio.run_coroutine_threadsafe(start_next(), loop).result(20)
        thread.give_way(in_forward=True)

    async def start_next() -> None:
        index = len(started)
        started.append(asyncio.create_task(run(thread, works[index], rank=9.0 - index)))
        await asyncio.sleep(0)

    video = DecodingBench(tiny_checkpoints, "wan", before_block)
    works: list[DecodeWork] = []
    alone = [await run(thread, video.work(seed)) for seed in range(4)]
    works.extend(video.work(seed) for seed in range(4))
    await start_next()
    while len(started) < len(works) or not all(task.done() for task in started):
        await asyncio.wait(started)
    made = [task.result() for task in started]
    assert all(np.array_equal(one, whole) for one, whole in zip(made, alone, strict=True))


async def test_a_vae_that_a_block_casts_for_a_call_is_cast_for_that_job_alone(
    tiny_checkpoints: Path, thread: DeviceThread
) -> None:
    """SDXL's is made float32 for each decode where it would overflow in float16."""
    gate = Gate(thread)
    bench = DecodingBench(tiny_checkpoints, "sdxl", gate.before_block, torch.float16)
    bench.vae.register_to_config(force_upcast=True)
    works = [bench.work(seed) for seed in (1, 2)]
    alone = [await run(thread, work) for work in works]
    gate.hold_at = gate.count + 5
    running = asyncio.create_task(run(thread, works[0], rank=9.0))
    await gate.reached()
    assert {weight.dtype for weight in bench.vae.parameters()} == {torch.float16}
    better = asyncio.create_task(run(thread, works[1], rank=1.0))
    await asyncio.sleep(0)
    gate.let_go()
    made = await asyncio.gather(running, better)
    assert all(np.array_equal(one, whole) for one, whole in zip(made, alone, strict=True))


async def test_short_memory_falls_back_to_tiles_for_that_decode_alone(
    tiny_checkpoints: Path, thread: DeviceThread
) -> None:
    bench = DecodingBench(tiny_checkpoints, "sdxl", Gate(thread).before_block)
    whole = await run(thread, bench.work(0, SIDE))
    tiled = await run(thread, bench.work(0, SIDE, tile_from_pixels=0))

    def too_large(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if inputs[0].shape[-1] == SIDE // 8:
            raise torch.OutOfMemoryError("no more")

    cap = bench.vae.decoder.register_forward_pre_hook(too_large)
    work = bench.work(0, SIDE)
    again = replace(work, tile_from_pixels=0)
    frames, _ = await run_twice(thread, (1.0, ""), partial(work.run, thread), alone=partial(again.run, thread))
    assert np.array_equal(pixels(frames), tiled)
    with pytest.raises(torch.OutOfMemoryError):
        await run(thread, bench.work(0, SIDE))
    cap.remove()
    assert np.array_equal(await run(thread, bench.work(0, SIDE)), whole)


async def blocks_of_a_chunk(thread: DeviceThread, video: DecodingBench, gate: Gate) -> int:
    before = gate.count
    await run(thread, video.work(0, latent_frames=1))
    return gate.count - before
