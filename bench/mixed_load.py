"""Four short jobs to one that takes 40 times as long, through the whole suite: first come first served, and stretch.

Both policies get the same arrivals, at random, at `--load` of what the denoiser can do; each in a suite of its own, of
real processes, one worker and one torch thread a stage. Nobody is refused, and no prompt is found in the encoder's
cache. What a job takes alone is measured in the same suites, before the jobs come and after. The delay of a job is what
it takes beyond that, from the moment at which it was to come; none counts for less than `resolution_s`, which is how
much longer than usual a short job alone takes one time in twenty.

`p99_gain`: how many times smaller the 99th percentile of the short jobs' delay is under stretch; 95% of a bootstrap lie
from `p99_gain_low` to `p99_gain_high`. `sim_error`: by how much of the measured mean delay the simulator is off, given
the same arrivals and what jobs take alone: the mean over both policies and both kinds; `sim_error_as_run`: given also
how fast the device worked for each job. `slowdown`: the device seconds of a job among others, beside those of one
alone; it tells what else the machine did meanwhile.

    python -m bench.mixed_load --json
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bench.arrivals import (
    KINDS,
    LONG,
    Arrival,
    as_workload,
    draw_arrivals,
    read_arrivals,
    scale_to_load,
    write_workload,
)
from bench.long_model import BLOCKS, write_long_model
from bench.mixed_report import AFTER, BEFORE, MixedReport
from bench.mixed_suite import SHORT_STEPS, Jobs, mixed_suite
from bench.passage import Passage, Solo
from bench.program import bench_folder, note, options_of, tell
from services.router.core.config import PolicyName
from services.router.core.job import StageSeconds

SHORT_JOBS, SHORT_JOBS_A_LONG_ONE = 150, 4
TIMES_LONGER = 40.0
LOAD = 0.7
WORKLOAD = Path("out/mixed_load.jsonl")
TOLD_EVERY = 20


class MixedLoad:
    """Runs both arms. `passages`: of each job under each policy; `alone`: of jobs alone, under both."""

    def __init__(self, arrivals: Sequence[Arrival], load: float) -> None:
        self.arrivals = list(arrivals)
        self.jobs = Jobs()
        self.alone = {kind: Solo() for kind in KINDS}
        self.passages: dict[PolicyName, list[Passage]] = {}
        self._load = load

    @property
    def seconds(self) -> dict[str, StageSeconds]:
        """What jobs take alone, by kind."""
        return {kind: solo.seconds for kind, solo in self.alone.items()}

    @property
    def block_s(self) -> float:
        """A block of the long job."""
        return self.seconds[LONG].denoise_s / (self.jobs.long_steps * BLOCKS)

    async def run(self) -> None:
        """The arrivals are scaled to the load by what jobs take alone in the first suite."""
        torch.set_num_threads(1)
        with bench_folder() as folder:
            catalog = write_long_model(folder)
            for policy in (BEFORE, AFTER):
                await self._run_arm(folder, catalog, policy)

    async def _run_arm(self, folder: Path, catalog: Path, policy: PolicyName) -> None:
        note(f"{policy}: the suite starts, and jobs are measured alone")
        async with mixed_suite(folder, catalog, policy, self.jobs) as suite:
            await suite.warm_up()
            first = not self.passages
            if first:
                await suite.fit_long_steps(TIMES_LONGER)
            await suite.measure_alone(self.alone)
            if first:
                work_s = {kind: each.denoise_s for kind, each in self.seconds.items()}
                self.arrivals = scale_to_load(self.arrivals, work_s, self._load)
            note(f"{policy}: {len(self.arrivals)} jobs come within {self.arrivals[-1].arrival_s:.0f} s")
            self.passages[policy] = await suite.play(self.arrivals, self._tell_ended)
            await suite.measure_alone(self.alone)

    def _tell_ended(self, count: int) -> None:
        if count % TOLD_EVERY == 0 or count == len(self.arrivals):
            note(f"  {count} of {len(self.arrivals)} have ended")


async def run(arrivals: Sequence[Arrival], load: float, seed: int, workload: Path) -> dict[str, Any]:
    """The figures. The workload is written where it is to be: for the simulator, and for a run with the same jobs."""
    mixed = MixedLoad(arrivals, load)
    await mixed.run()
    jobs = as_workload(mixed.arrivals, mixed.seconds)
    write_workload(workload, jobs)
    report = MixedReport(jobs, mixed.alone, mixed.passages, mixed.block_s)
    return {
        "benchmark": "mixed_load",
        "cores": os.cpu_count(),
        "jobs": {kind: sum(arrival.kind == kind for arrival in arrivals) for kind in KINDS},
        "seed": seed,
        "prompts": "distinct",
        "workload": str(workload),
        "steps": {"short": SHORT_STEPS, "long": mixed.jobs.long_steps},
        **report.figures(seed),
    }


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--images", type=int, default=SHORT_JOBS, help="short jobs; a quarter as many are long")
    parser.add_argument("--load", type=float, default=LOAD, help="part of what the denoiser can do")
    parser.add_argument("--seed", type=int, default=1, help="of the arrivals, and of the bootstrap")
    parser.add_argument("--arrivals", type=Path, help="take the jobs of this workload, scaled to the load")
    parser.add_argument("--workload", type=Path, default=WORKLOAD, help="where the jobs are written")
    options = parser.parse_args()
    if not (options.images >= SHORT_JOBS_A_LONG_ONE and 0 < options.load < 1):
        parser.error(f"--images must be {SHORT_JOBS_A_LONG_ONE} or more, --load between 0 and 1")
    try:
        arrivals = read_arrivals(options.arrivals) if options.arrivals else _drawn(options.images, options.seed)
    except ValueError as error:
        parser.error(str(error))
    tell(asyncio.run(run(arrivals, options.load, options.seed, options.workload)), options.json)


def _drawn(short_jobs: int, seed: int) -> list[Arrival]:
    return draw_arrivals(short_jobs, round(short_jobs / SHORT_JOBS_A_LONG_ONE), seed)


if __name__ == "__main__":
    main()
