"""The smallest fleet: found, and no smaller one holds."""

from collections.abc import Sequence

import pytest

from services.router.simulate.plan import Plan, PlanError, Planner
from services.router.simulate.settings import FleetSettings, PolicySettings
from services.router.simulate.simulation import Run, simulate
from services.router.simulate.slo import parse_slo
from services.router.simulate.workload import SimulatedJob
from tests.unit.simulate.jobs import job, mixed


def plan(
    jobs: Sequence[SimulatedJob], *slos: str, policy: str = "stretch", sizes: Sequence[int] = (1,), most: int = 32
) -> Plan:
    settings = PolicySettings(policy)  # type: ignore[arg-type]

    def run(some: Sequence[SimulatedJob], fleet: FleetSettings) -> Run:
        return simulate(some, settings, fleet)

    return Planner(jobs, [parse_slo(text) for text in slos], settings, FleetSettings(), run).find(sizes, most)


def test_one_worker_less_would_not_do() -> None:
    jobs = [job(n, 0.25 * n, 1.0 + n % 3) for n in range(200)]
    found = plan(jobs, "image p90 wait < 1s", policy="fcfs").run.fleet
    slo = parse_slo("image p90 wait < 1s")
    for workers in range(found.workers - 3, found.workers + 1):
        met = slo.met(simulate(jobs, PolicySettings("fcfs"), FleetSettings(workers=workers)).outcomes)
        assert met == (workers == found.workers)


def test_groups_where_one_card_is_too_slow() -> None:
    jobs = [job(n, 200.0 * n, 100.0, "video") for n in range(20)]
    assert plan(jobs, "video p99 < 120s", sizes=(1, 2, 4)).run.fleet.words == "1 worker"
    assert plan(jobs, "video p99 < 30s", sizes=(1, 2, 4)).run.fleet.words == "1 worker of 4 cards"
    with pytest.raises(PlanError, match=r"no fleet of up to 32 cards will do: video p99 < 10s was 28\.4 with"):
        plan(jobs, "video p99 < 10s", sizes=(1, 2, 4))


def test_pools_where_they_take_fewer_cards() -> None:
    found = plan(mixed(), "image p99 < 4s", "video p99 < 30s", policy="pools", sizes=(1, 2, 4)).run.fleet
    assert {pool.kind: pool.cards for pool in found.pools} == {"image": 1, "video": 2}


def test_a_plan_for_jobs_that_are_not_there() -> None:
    with pytest.raises(PlanError, match="no jobs of kind sound; there are image, video"):
        plan(mixed(), "sound p99 < 1s")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("image p99 < 10s", ("image", 0.99, "latency", 10.0)),
        ("video p90 delay <= 5 min", ("video", 0.9, "delay", 300.0)),
        ("video max stretch < 3x", ("video", 1.0, "stretch", 3.0)),
        ("txt_2_img p99.9 wait<500ms", ("txt_2_img", 0.999, "wait", 0.5)),
    ],
)
def test_slos_as_people_write_them(text: str, expected: tuple[object, ...]) -> None:
    slo = parse_slo(text)
    assert (slo.kind, pytest.approx(slo.quantile), slo.metric, slo.limit) == expected


@pytest.mark.parametrize(
    "text", ["", "image", "image p99 > 3s", "image p99 < 3 parsec", "image p99 < 3x", "a p50 stretch < 3s"]
)
def test_slos_that_make_no_sense(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not"):
        parse_slo(text)
