"""How fast a short job gets the device from a long one, and what it costs the short one: through gRPC, on the CPU.

`switch_ms`: from the hand-over of the short job's work to the device thread until it runs. `long_blocks_during`: blocks
of the long job that began while the short one ran. `short_ratio`: the short job's time beside the long one to its time
alone, by alternating pairs.

    python -m bench.preemption --json
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench.denoiser import BenchDenoiser, bench_denoiser
from bench.long_model import spec_of
from bench.program import main
from services.stage.device_thread import DeviceThread, Rank

ARRIVALS, PAIRS = 200, 30
SHORT_STEPS = 2
LONG_RANK, SHORT_RANK = 1e9, 1.0


class Switches:
    """Notes, around the device thread's own `run`, when work of the best ranks was handed over, began and ended."""

    def __init__(self, thread: DeviceThread) -> None:
        self.waits_s: list[float] = []
        self.spans: list[tuple[float, float]] = []
        self._stock = thread.run
        thread.run = self._run  # type: ignore[method-assign]

    async def _run(self, rank: Rank, function: Callable[[], Any], **options: Any) -> Any:
        if rank[0] >= LONG_RANK:
            return await self._stock(rank, function, **options)
        handed_over = time.perf_counter()

        def timed() -> Any:
            began = time.perf_counter()
            self.waits_s.append(began - handed_over)
            try:
                return function()
            finally:
                self.spans.append((began, time.perf_counter()))

        return await self._stock(rank, timed, **options)


async def measure(bench: BenchDenoiser) -> dict[str, object]:
    switches = Switches(bench.host.thread)
    short_forward_s = await bench.seconds(spec_of("short", SHORT_STEPS), SHORT_RANK) / SHORT_STEPS
    long = await bench.start_long(LONG_RANK)
    switches.waits_s.clear()
    switches.spans.clear()
    for index in range(ARRIVALS):
        await asyncio.sleep(0.03 * (index % 7) / 7)  # at any place within a block
        await bench.seconds(spec_of("short", SHORT_STEPS, index), SHORT_RANK)
    waits_s, spans = list(switches.waits_s), list(switches.spans)
    during = [sum(began < block < ended for block in bench.blocks.began) for began, ended in spans]
    blocks_s = _block_times(bench, spans)
    long.cancel()
    beside, alone = await _pairs(bench)
    return {
        "benchmark": "preemption",
        "arrivals": ARRIVALS,
        "block_ms": round(median(blocks_s) * 1e3, 1),
        "longest_block_ms": round(max(blocks_s) * 1e3, 1),
        "short_forward_ms": round(short_forward_s * 1e3, 1),
        "switch_ms_p50": round(median(waits_s) * 1e3, 1),
        "switch_ms_p95": round(quantiles(waits_s, n=20)[-1] * 1e3, 1),
        "switch_ms_max": round(max(waits_s) * 1e3, 1),
        "long_blocks_during": max(during),
        "short_ratio": round(median(one / other for one, other in zip(beside, alone, strict=True)), 3),
        "pairs": PAIRS,
    }


async def _pairs(bench: BenchDenoiser) -> tuple[list[float], list[float]]:
    """The short job beside the long one and alone, in turn."""
    beside, alone = [], []
    for index in range(PAIRS):
        long = await bench.start_long(LONG_RANK)
        beside.append(await bench.seconds(spec_of("short", 10, index), SHORT_RANK))
        long.cancel()
        await bench.seconds(spec_of("short", 1, index), SHORT_RANK)  # the long one has left the device
        alone.append(await bench.seconds(spec_of("short", 10, index), SHORT_RANK))
    return beside, alone


def _block_times(bench: BenchDenoiser, spans: list[tuple[float, float]]) -> list[float]:
    """Seconds from one block's beginning to the next one's, where no short job ran between."""
    pairs = zip(bench.blocks.began, bench.blocks.began[1:], strict=False)
    return [
        later - earlier
        for earlier, later in pairs
        if not any(began < later and ended > earlier for began, ended in spans)
    ]


async def run(folder: Path) -> dict[str, object]:
    async with bench_denoiser(folder) as bench:
        return await measure(bench)


if __name__ == "__main__":
    main(__doc__, run)
