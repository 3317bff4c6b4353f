"""What computing equal forwards of several jobs as one brings: through gRPC, on the CPU, four jobs at once.

`gain` of a case: the time of four jobs that may not be merged to the time of four that may, the median of 9 alternating
rounds, after merging has been tried out. `worst`: the least gain of all cases, large shapes that gain nothing among
them. `best_gain`: that of the embedded model.

    python -m bench.merge --json
"""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.denoiser import BenchDenoiser, bench_denoiser
from bench.long_model import spec_of
from bench.program import main
from tests.tiny_checkpoints import make_tiny_checkpoints
from triptych.v1.denoiser_service_pb2 import DenoiseFinished
from triptych.v1.job_pb2 import JobSpec

JOBS, ROUNDS = 4, 9
# Forwards that it takes, at most, to find out what every batch of up to four brings, with some to spare.
TRIALS = 24


@dataclass(frozen=True)
class Case:
    """A model at a size, and the forwards of each job in a round."""

    model: str
    side: int
    forwards: int


CASES = [
    Case("short", 96, 20),
    Case("sdxl", 64, 8),
    Case("sdxl", 128, 4),
    Case("flux", 64, 16),
    Case("flux", 256, 8),
    Case("long", 256, 2),
]
EMBEDDED = CASES[0]


async def measure(bench: BenchDenoiser) -> dict[str, object]:
    results = {case: await _measure(bench, case) for case in CASES}
    gains = {case: median(rounds) for case, (rounds, _) in results.items()}
    return {
        "benchmark": "merge",
        "jobs": JOBS,
        "rounds": ROUNDS,
        "cases": [
            {
                "model": "shapes" if case == EMBEDDED else case.model,
                "side": case.side,
                "gain": round(gains[case], 3),
                "least_round": round(min(rounds), 3),
                "batch": batch,
            }
            for case, (rounds, batch) in results.items()
        ],
        "worst": round(min(gains.values()), 3),
        "best_gain": round(gains[EMBEDDED], 3),
    }


async def _measure(bench: BenchDenoiser, case: Case) -> tuple[list[float], int]:
    """Each round's gain, and the largest batch that was used."""
    await _seconds(bench, case, reproducible=True)
    await _seconds(bench, case, reproducible=False, forwards=TRIALS)
    gains, batch = [], 1
    for index in range(ROUNDS):
        took: dict[bool, float] = {}
        for reproducible in (index % 2 == 0, index % 2 == 1):
            took[reproducible], largest = await _seconds(bench, case, reproducible=reproducible)
            batch = max(batch, largest)
        gains.append(took[True] / took[False])
    return gains, batch


async def _seconds(
    bench: BenchDenoiser, case: Case, *, reproducible: bool, forwards: int | None = None
) -> tuple[float, int]:
    """How long four jobs at once take, and the largest batch."""
    began = time.perf_counter()
    jobs = (_finished(bench, _spec(case, seed, forwards or case.forwards, reproducible), seed) for seed in range(JOBS))
    finished = await asyncio.gather(*jobs)
    took_s = time.perf_counter() - began
    return took_s, max(each.merged_batch_size or each.batch_size for job in finished for each in job.measurements)


def _spec(case: Case, seed: int, forwards: int, reproducible: bool) -> JobSpec:
    spec = spec_of(case.model, forwards, seed)
    spec.width = spec.height = case.side
    spec.reproducible = reproducible
    return spec


async def _finished(bench: BenchDenoiser, spec: JobSpec, rank: float) -> DenoiseFinished:
    finished = DenoiseFinished()
    async for event in bench.denoise(spec, rank):
        if event.HasField("finished"):
            finished = event.finished
    return finished


async def run(folder: Path) -> dict[str, object]:
    make_tiny_checkpoints(folder / "tiny")
    tiny = {model: folder / "tiny" / model for model in ("sdxl", "flux")}
    async with bench_denoiser(folder, tiny, max_active_jobs=JOBS) as bench:
        return await measure(bench)


if __name__ == "__main__":
    main(__doc__, run)
