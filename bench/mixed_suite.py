"""A suite that serves short and long jobs under one of the scheduler's policies, and turns nobody away."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median

from bench.arrivals import KINDS, LONG, SHORT, Arrival
from bench.long_model import SIDE
from bench.passage import Passage, Solo, pass_through
from bench.stock import SIDE as SHORT_SIDE
from bench.stock import prompt_of
from services.router.core.config import PolicyName
from triptych.client import Client
from triptych.supervisor import Suite, SuiteConfig
from triptych.v1.job_pb2 import JobSpec

SHORT_STEPS = 5
WARM_UP = {SHORT: 5, LONG: 1}
ALONE = {SHORT: 15, LONG: 2}
# What a step of the long job takes is told from jobs of so many.
FEW_STEPS, MORE_STEPS = 3, 9

ROUTER = """
[scheduler]
policy = "{policy}"

[[scheduler.pools]]
name = "all"
max_backlog_s = 1e9
max_job_s = 1e9
"""


@dataclass
class Jobs:
    """Specs, each with a prompt and a seed of its own: no prompt is found encoded, no forward is merged."""

    long_steps: int = FEW_STEPS
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    def spec(self, kind: str) -> JobSpec:
        number, side = next(self._numbers), SIDE if kind == LONG else SHORT_SIDE
        return JobSpec(
            model=kind,
            prompt=prompt_of(number),
            seed=number,
            step_count=self.long_steps if kind == LONG else SHORT_STEPS,
            guidance=1.0,
            width=side,
            height=side,
        )


class MixedSuite:
    """The running suite, to its client."""

    def __init__(self, client: Client, jobs: Jobs) -> None:
        self._client = client
        self._jobs = jobs

    async def one(self, kind: str) -> Passage:
        """A job that has the suite alone, if nothing else runs."""
        return await pass_through(self._client, self._jobs.spec(kind))

    async def warm_up(self) -> None:
        for kind in KINDS:
            for _ in range(WARM_UP[kind]):
                await self.one(kind)

    async def measure_alone(self, alone: dict[str, Solo]) -> None:
        """Add to what is known of jobs alone."""
        for kind in KINDS:
            alone[kind].passages += [await self.one(kind) for _ in range(ALONE[kind])]

    async def fit_long_steps(self, times_longer: float) -> None:
        """Let long jobs take so many times as long as a short one."""
        short_s = median([(await self.one(SHORT)).latency_s for _ in range(ALONE[SHORT])])
        few_s, more_s = [await self._long_s(steps) for steps in (FEW_STEPS, MORE_STEPS)]
        step_s = (more_s - few_s) / (MORE_STEPS - FEW_STEPS)
        self._jobs.long_steps = max(1, round(FEW_STEPS + (times_longer * short_s - few_s) / step_s))

    async def _long_s(self, steps: int) -> float:
        self._jobs.long_steps = steps
        return min([(await self.one(LONG)).latency_s for _ in range(2)])

    async def play(self, arrivals: Sequence[Arrival], told: Callable[[int], None]) -> list[Passage]:
        """Hand in each job when it is to come. A passage begins then, even if the job came late to the router."""
        began_at, ended = time.time(), count(1)

        async def come(arrival: Arrival, spec: JobSpec) -> Passage:
            at = began_at + arrival.arrival_s
            await asyncio.sleep(at - time.time())
            passage = await pass_through(self._client, spec, at)
            told(next(ended))
            return passage

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(come(arrival, self._jobs.spec(arrival.kind))) for arrival in arrivals]
        return [task.result() for task in tasks]


@asynccontextmanager
async def mixed_suite(folder: Path, catalog: Path, policy: PolicyName, jobs: Jobs) -> AsyncIterator[MixedSuite]:
    """Start it in a folder of its own, with one worker a stage and one torch thread each."""
    place = folder / policy
    place.mkdir()
    router_config = place / "router.toml"
    router_config.write_text(ROUTER.format(policy=policy))
    config = SuiteConfig(
        state_dir=place / "state",
        catalog=catalog,
        router_config=router_config,
        device="cpu",
        threads=1,
        stage_threads=1,
        log_level="warning",
    )
    async with Suite(config) as suite, suite.client() as client:
        yield MixedSuite(client, jobs)
