"""What a router does that is told nothing: the default configuration, at every scale of jobs."""

from dataclasses import replace
from math import inf
from random import Random

import pytest

from services.router.core.config import SchedulerConfig
from services.router.core.events import JobSubmitted
from services.router.core.job import JobRequest, Stage, StageSeconds
from services.router.core.scheduler import Scheduler
from services.router.simulate.generator import Arrivals, generate, parse_mix
from services.router.simulate.machines import MachineModel
from services.router.simulate.percentiles import percentile
from services.router.simulate.report import count
from services.router.simulate.requests import REQUESTS
from services.router.simulate.settings import FleetSettings, PolicySettings
from services.router.simulate.simulation import Outcome, Run, simulate
from services.router.simulate.workload import SimulatedJob, scale_to_load
from tests.scenarios.virtual_clock import VirtualClock, worker

FLEET = FleetSettings(workers=4, encoders=0, decoders=0)
EQUAL_WORK = ",".join(f"{kind}={1 / seconds.total_s:.12f}" for kind, seconds in REQUESTS.items())


def run(jobs: list[SimulatedJob], load: float, fleet: FleetSettings = FLEET, policy: str = "stretch") -> Run:
    settings = PolicySettings(policy, max_queued=100 if policy == "fcfs" else None)  # type: ignore[arg-type]
    return simulate(scale_to_load(jobs, load, fleet.workers), settings, fleet)


def made_up(mix: str, job_count: int) -> list[SimulatedJob]:
    return generate(Arrivals(0.1), parse_mix(mix), job_count, Random("jobs 0"))


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_fleet_of_one_kind_of_job_is_kept_busy_and_in_time(kind: str) -> None:
    jobs = made_up(f"{kind}=1", 1000)
    for load, least, busy in ((0.7, 0.99, 0.65), (0.95, 0.94, 0.88)):
        found = run(jobs, load)
        assert count(found.outcomes).goodput >= least
        assert count(found.outcomes).late_share <= 0.01
        assert found.utilisation >= busy


@pytest.mark.parametrize(("load", "least"), [(0.7, 0.99), (0.95, 0.98), (1.5, 0.85)])
def test_kinds_that_differ_ten_thousandfold_share_a_fleet(load: float, least: float) -> None:
    found = run(made_up(EQUAL_WORK, 4000), load)
    assert count(found.outcomes).goodput >= least
    for kind in REQUESTS:
        stretches = [stretch(o) for o in found.outcomes if o.job.kind == kind and not o.refusal]
        assert (percentile(stretches, 0.99) or 0.0) <= 5.0


def test_a_bursty_overload_of_many_tenants_brings_far_more_home_than_a_capped_queue() -> None:
    random = Random("bursty")
    times = Arrivals(1.0, burst_factor=6.0, burst_s=250.0).times(random)
    jobs = [
        SimulatedJob(
            f"job{number:05}",
            next(times),
            "image",
            StageSeconds(0.0, min(567.0, max(7.0, random.lognormvariate(3.2, 0.6))), 0.0),
            f"model{random.randrange(8)}",
            f"tenant{min(int(random.paretovariate(0.7)), 300)}",
        )
        for number in range(4000)
    ]
    fleet = replace(FLEET, workers=8)
    found, capped = run(jobs, 0.9, fleet), run(jobs, 0.9, fleet, policy="fcfs")
    assert count(found.outcomes).goodput >= 2.5 * count(capped.outcomes).goodput
    assert count(found.outcomes).late_share <= 0.01


def stretch(outcome: Outcome) -> float:
    return outcome.delay_s / outcome.job.service_s


@pytest.mark.parametrize("power", [-7, 10])
def test_every_decision_is_the_same_at_another_scale_of_time(power: int) -> None:
    """All times of a workload, and the pools' boundary, times a 128th and times 1,024: exact in binary."""
    here, there = decisions(1.0), decisions(2.0**power)
    assert len(here[0]) > 50
    assert here[0] == there[0]
    assert {job_id: time_s * 2.0**power for job_id, time_s in here[1].items()} == there[1]


def decisions(factor: float) -> tuple[dict[str, str], dict[str, float]]:
    """Why each refused job was, and when each of the others ended."""
    random = Random("scale")
    shipped = SchedulerConfig()
    pools = tuple(replace(pool, max_estimate_s=pool.max_estimate_s * factor) for pool in shipped.pools)
    config = replace(shipped, pools=pools, move_cost_s=shipped.move_cost_s * factor)
    clock = VirtualClock(Scheduler(config), MachineModel(block_s=0.125 * factor), progress_s=factor)
    clock.fleet(
        worker("e", Stage.ENCODE, slots=64),
        worker("d", Stage.DECODE, slots=64),
        *(worker(f"n{index}", Stage.DENOISE, slots=3) for index in range(4)),
    )
    now = 0.0
    for number in range(600):
        now += random.expovariate(1 / 4.0)
        denoise_s = random.choice([0.25, 2.0, 30.0, 600.0]) * (1 + random.random() / 8)
        seconds = StageSeconds(0.125 * factor, denoise_s * factor, 0.0625 * denoise_s * factor)
        tenant = f"tenant{random.randrange(6)}"
        clock.at(now * factor, JobSubmitted(JobRequest(f"{number:04}", tenant, "m", "standard", seconds)))
    clock.run(inf)
    return {job_id: verdict.reason for job_id, verdict in clock.refused.items()}, clock.finishes
