"""Short jobs, many at once, re-ranked, amended, cancelled and failing: nobody hangs, nothing grows or is wrong.

Every finished job is compared with the same job alone, amended at the same step: reproducible ones bit for bit, those
that may be merged to rounding. `amends` counts what was asked for, and when it was taken: while the job was `queued`
(or in its first step), `running`, too `late` to change a step, or when it was `over`. `pauses`: how often a job gave
way to a better-ranked one. `hung`: jobs that were not over after a minute. `growth_mb`: what the process holds more
after each quarter of them than after the one before. `alone_changed`: jobs that come out otherwise alone after all that
than before. Exits with 1 if `sound` is not true: `hung`, `astray` (failed, and were not to), `wrong`, `difference`,
`alone_changed`, `left_on_device` and `threads_more` are to be 0, and the least `growth_mb` next to it.

    python -m bench.short_jobs --json
"""

import asyncio
import gc
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from bench.denoiser import BenchDenoiser, bench_denoiser
from bench.program import bench_folder, options_of, tell
from bench.short.alone import CPU
from bench.short.plans import MODELS, make_plans
from bench.short.runner import PLACES, Runner
from services.stage.device_memory import allocated_on
from tests.tiny_checkpoints import make_tiny_checkpoints

JOBS = 2_000
# What leaks grows in every quarter; a buffer that is made once does not. 500 bytes a job of the 2,000.
LEAK_MB = 0.25
# Each step is told: so it is known which was the first of another count.
SETTINGS = {"max_active_jobs": PLACES, "progress_seconds": 0.0}


async def run_short_jobs(bench: BenchDenoiser, job_count: int, seed: int) -> dict[str, object]:
    """Run so many jobs, quarter by quarter; what came of them. The bench is to have `SETTINGS`."""
    plans = make_plans(job_count, seed)
    runner = Runner(bench)
    began = time.perf_counter()
    await runner.learn(plans)
    process, threads = psutil.Process(), 0
    held: list[int] = []
    for quarter in range(4):
        await runner.run(plans[quarter * job_count // 4 : (quarter + 1) * job_count // 4])
        held.append(_held_bytes())
        # The first one warms up.
        threads = threads or process.num_threads()
    tally = runner.tally
    zeros = {
        "hung": tally.outcomes["hung"],
        "astray": tally.astray,
        "wrong": len(tally.wrong),
        "difference": tally.difference,
        "alone_changed": len(await runner.alone.changed()),
        "left_on_device": await bench.host.thread.run((1e9, ""), lambda: bench.host.thread.started_count - 1),
        "threads_more": process.num_threads() - threads,
    }
    growth_mb = [round((after - before) / 2**20, 2) for before, after in pairwise(held)]
    return {
        "benchmark": "short_jobs",
        "jobs": job_count,
        "seconds": round(time.perf_counter() - began, 1),
        "outcomes": dict(tally.outcomes),
        "amends": {kind: dict(outcomes) for kind, outcomes in tally.amends.items()},
        "pauses": bench.host.thread.pause_count,
        **zeros,
        "merging_difference": tally.merging_difference,
        "merged_share": round(tally.merged_forwards / max(1, tally.forwards), 3),
        "growth_mb": growth_mb,
        "sound": not any(zeros.values()) and min(growth_mb) <= LEAK_MB,
    }


def _held_bytes() -> int:
    gc.collect()
    return allocated_on(CPU)()


def short_models(folder: Path) -> dict[str, Path]:
    """Write the models; their places by name."""
    make_tiny_checkpoints(folder)
    return {model: folder / model for model in MODELS}


async def run(job_count: int, seed: int) -> dict[str, object]:
    with bench_folder() as folder:
        async with bench_denoiser(folder, short_models(folder / "tiny"), **SETTINGS) as bench:
            return await run_short_jobs(bench, job_count, seed)


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"jobs in all (default {JOBS})")
    parser.add_argument("--seed", type=int, default=1, help="of the jobs, and of what befalls them")
    options = parser.parse_args()
    result: dict[str, Any] = asyncio.run(run(options.jobs, options.seed))
    tell(result, options.json)
    sys.exit(0 if result["sound"] else 1)


if __name__ == "__main__":
    main()
