"""The source document's simulation, run by the scheduler itself: all 24 waits to 1e-9, and what they led to."""

import json
from pathlib import Path
from statistics import median

import pytest

from services.router.core.config import Borrow, PolicyName
from services.router.simulate.percentiles import percentile
from services.router.simulate.settings import FleetSettings, PolicySettings, Pool
from services.router.simulate.simulation import Run, simulate
from services.router.simulate.workload import read_workload

DATA = Path(__file__).parent / "data"
EXPECTED = json.loads((DATA / "source_simulation.json").read_text())
RATES = ("0.06", "0.08")
POOLS = tuple(Pool(kind, workers) for kind, workers in EXPECTED["pools"].items())
ONE_POOL = FleetSettings(workers=EXPECTED["gpus"], block_s=0.15)
TWO_POOLS = FleetSettings(pools=POOLS, block_s=0.15)


def run(rate: str, policy: PolicySettings, fleet: FleetSettings = ONE_POOL) -> Run:
    return simulate(read_workload(DATA / f"source_workload_{rate}.jsonl"), policy, fleet)


def p99(found: Run, kind: str, figure: str = "delay_s") -> float:
    value = percentile([getattr(o, figure) for o in found.outcomes if o.job.kind == kind], 0.99)
    assert value is not None
    return value


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "pools"])
@pytest.mark.parametrize("expected", EXPECTED["runs"], ids=lambda expected: str(expected["arrival_rate_per_s"]))
def test_waits_are_those_of_the_source(expected: dict[str, object], policy: PolicyName) -> None:
    found = run(str(expected["arrival_rate_per_s"]), PolicySettings(policy), TWO_POOLS)
    for kind, waits in expected["expected"][policy].items():  # type: ignore[index]
        mine = [outcome.wait_s for outcome in found.outcomes if outcome.job.kind == kind]
        assert percentile(mine, 0.5) == pytest.approx(waits["p50_wait_s"], abs=1e-9)  # type: ignore[type-var]
        assert percentile(mine, 0.99) == pytest.approx(waits["p99_wait_s"], abs=1e-9)  # type: ignore[type-var]


@pytest.mark.parametrize(("rate", "video_s"), [("0.06", 740.0), ("0.08", 1050.0)])
def test_stretch_is_better_than_pools_for_both_kinds_at_once(rate: str, video_s: float) -> None:
    found = run(rate, PolicySettings("stretch", no_admission=True))
    pools = run(rate, PolicySettings("pools"), TWO_POOLS)
    assert p99(found, "image") <= 0.5 < p99(pools, "image")
    assert p99(found, "video") <= video_s < p99(pools, "video")
    assert max(outcome.delay_s / outcome.job.service_s for outcome in found.outcomes) <= 5.0


@pytest.mark.parametrize("rate", RATES)
def test_pools_that_lend_do_as_well_as_a_single_one(rate: str) -> None:
    stretch = PolicySettings("stretch", no_admission=True, borrow="preemptible")
    found, single = run(rate, stretch, TWO_POOLS), run(rate, stretch)
    assert p99(found, "image") <= 0.5
    assert p99(found, "video") <= 1.05 * p99(single, "video")
    assert max(outcome.delay_s / outcome.job.service_s for outcome in found.outcomes) <= 5.0


@pytest.mark.parametrize("rate", RATES)
def test_a_cap_on_videos_lets_images_through_and_holds_videos_back(rate: str) -> None:
    free = run(rate, PolicySettings("fcfs"))
    capped = run(rate, PolicySettings("pools", max_running=2), TWO_POOLS)
    assert p99(capped, "image", "wait_s") < p99(free, "image", "wait_s") / 10
    assert p99(capped, "video", "wait_s") > 2 * p99(free, "video", "wait_s")


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("policy", ["fcfs", "pools"])
def test_starts_are_foretold_exactly_where_nobody_overtakes(rate: str, policy: PolicyName) -> None:
    assert foretold_error(run(rate, PolicySettings(policy), TWO_POOLS)) == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("borrow", ["none", "idle", "preemptible"])
def test_starts_are_foretold_with_what_may_be_borrowed(rate: str, borrow: Borrow) -> None:
    found = run(rate, PolicySettings("stretch", no_admission=True, borrow=borrow), TWO_POOLS)
    assert foretold_error(found) <= 0.25  # those who overtake come later, unforeseen
    waits = [(o.predicted_wait_s, o.wait_s) for o in found.outcomes if o.wait_s is not None]
    assert median(abs((foretold_s or 0.0) - wait_s) for foretold_s, wait_s in waits) <= 0.15  # a block


def foretold_error(found: Run) -> float:
    """The median of |foretold - waited| over waited, of the videos that waited for more than a second."""
    errors = [
        abs(outcome.predicted_wait_s - outcome.wait_s) / outcome.wait_s
        for outcome in found.outcomes
        if outcome.job.kind == "video" and outcome.wait_s is not None and outcome.wait_s > 1.0
        if outcome.predicted_wait_s is not None
    ]
    return median(errors)
