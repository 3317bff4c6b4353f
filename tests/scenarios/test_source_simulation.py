"""The source document's simulation, run by the scheduler itself: all 24 waits to 1e-9."""

import json
from pathlib import Path

import pytest

from services.router.core.config import PolicyName, PoolConfig, SchedulerConfig
from services.router.core.events import JobSubmitted
from services.router.core.job import Stage
from services.router.core.scheduler import Scheduler
from tests.scenarios.virtual_clock import VirtualClock, request, worker

DATA = Path(__file__).parent / "data"
EXPECTED = json.loads((DATA / "source_simulation.json").read_text())
KINDS = ("image", "video")


def percentile(values: list[float], q: float) -> float:
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


def waits(jobs_file: str, policy: PolicyName) -> dict[str, list[float]]:
    pools = tuple(PoolConfig(name=kind, models=(kind,), count=EXPECTED["pools"][kind]) for kind in KINDS)
    clock = VirtualClock(Scheduler(SchedulerConfig(policy=policy, pools=pools)))
    clock.fleet(
        worker("encoder", Stage.ENCODE, KINDS, slots=64),
        worker("decoder", Stage.DECODE, KINDS, slots=64),
        *(worker(f"gpu{index}", Stage.DENOISE, KINDS) for index in range(EXPECTED["gpus"])),
    )
    kinds = {}
    for index, line in enumerate((DATA / jobs_file).read_text().splitlines()):
        job = json.loads(line)
        kinds[f"job{index:03}"] = job["kind"]
        clock.at(job["arrival_s"], JobSubmitted(request(f"job{index:03}", job["service_s"], model=job["kind"])))
    clock.run()
    clock.scheduler.check_invariants()
    assert clock.finishes.keys() == kinds.keys()
    return {kind: [wait for job_id, wait in clock.waits.items() if kinds[job_id] == kind] for kind in KINDS}


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "pools"])
@pytest.mark.parametrize("run", EXPECTED["runs"], ids=lambda run: str(run["arrival_rate_per_s"]))
def test_waits_are_those_of_the_source(run: dict[str, object], policy: PolicyName) -> None:
    found = waits(str(run["jobs"]), policy)
    for kind, expected in run["expected"][policy].items():  # type: ignore[index]
        assert percentile(found[kind], 0.5) == pytest.approx(expected["p50_wait_s"], abs=1e-9)
        assert percentile(found[kind], 0.99) == pytest.approx(expected["p99_wait_s"], abs=1e-9)
