"""How soon a cancelled job stops, and whether it leaves anything behind: through gRPC, on the CPU.

`stop_ms`: from the client's cancel until the device is free for work that ranks behind the job. `leaked_mb`:
growth of the process over 200 cancels, after 50 for warm-up, what the allocator keeps of freed memory given back first.

    python -m bench.cancel --json
"""

import asyncio
import ctypes
import gc
import sys
import time
from pathlib import Path
from statistics import median, quantiles

import psutil

from bench.denoiser import BenchDenoiser, bench_denoiser
from bench.program import main

WARM_UP, CANCELS = 50, 200


async def measure(bench: BenchDenoiser) -> dict[str, object]:
    process = psutil.Process()
    stops_s: list[float] = []
    before = 0
    for index in range(WARM_UP + CANCELS):
        if index == WARM_UP:
            before = _held_bytes(process)
            stops_s.clear()
        stops_s.append(await _cancel_one(bench, index))
    leaked = _held_bytes(process) - before
    blocks_s = [
        later - earlier
        for earlier, later in zip(bench.blocks.began, bench.blocks.began[1:], strict=False)
        if later - earlier < 1.0
    ]
    return {
        "benchmark": "cancel",
        "cancels": CANCELS,
        "block_ms": round(median(blocks_s) * 1e3, 1),
        "stop_ms_p50": round(median(stops_s) * 1e3, 1),
        "stop_ms_p99": round(quantiles(stops_s, n=100)[-1] * 1e3, 1),
        "leaked_mb": round(leaked / 2**20, 2),
        "threads": process.num_threads(),
    }


def _held_bytes(process: psutil.Process) -> int:
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    return int(process.memory_info().rss)


async def _cancel_one(bench: BenchDenoiser, index: int) -> float:
    """Seconds from the cancel until the device was given to the next piece of work."""
    stream = await bench.start_long(rank=5.0)
    await asyncio.sleep(0.05 * (index % 5) / 5)
    began = time.perf_counter()
    stream.cancel()
    # Ranks behind: it can only run when the cancelled job has left the device for good.
    await bench.host.thread.run((6.0, ""), lambda: None)
    return time.perf_counter() - began


async def run(folder: Path) -> dict[str, object]:
    async with bench_denoiser(folder) as bench:
        return await measure(bench)


if __name__ == "__main__":
    main(__doc__, run)
