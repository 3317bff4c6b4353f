"""The arrivals of a mixed load, and what is made of delays."""

from collections import Counter
from pathlib import Path

import pytest

from bench.arrivals import (
    KINDS,
    LONG,
    SHORT,
    Arrival,
    as_workload,
    draw_arrivals,
    load_of,
    read_arrivals,
    scale_to_load,
    write_workload,
)
from bench.delays import at_least, gain_interval, p99, p99_gain, relative_error
from bench.mixed_report import MixedReport
from bench.passage import Passage, Solo
from services.router.core.config import PolicyName
from services.router.core.job import StageSeconds
from services.router.simulate.settings import FleetSettings, PolicySettings
from services.router.simulate.simulation import simulate
from services.router.simulate.workload import read_workload

WORK_S = {SHORT: 0.1, LONG: 4.0}
SECONDS = {SHORT: StageSeconds(0.02, 0.1, 0.03), LONG: StageSeconds(0.02, 4.0, 0.05)}


def test_arrivals_are_the_same_for_the_same_seed() -> None:
    arrivals = draw_arrivals(40, 10, seed=3)
    assert arrivals == draw_arrivals(40, 10, seed=3) != draw_arrivals(40, 10, seed=4)
    assert Counter(arrival.kind for arrival in arrivals) == {SHORT: 40, LONG: 10}
    assert arrivals == sorted(arrivals, key=lambda arrival: arrival.arrival_s)


def test_scaled_arrivals_have_the_load() -> None:
    arrivals = draw_arrivals(40, 10, seed=3)
    scaled = scale_to_load(arrivals, WORK_S, 0.7)
    assert load_of(scaled, WORK_S) == pytest.approx(0.7)
    ratios = [one.arrival_s / other.arrival_s for one, other in zip(scaled, arrivals, strict=True)]
    assert ratios == pytest.approx([ratios[0]] * len(ratios))


def test_a_workload_is_read_back(tmp_path: Path) -> None:
    arrivals = scale_to_load(draw_arrivals(40, 10, seed=3), WORK_S, 0.7)
    jobs = as_workload(arrivals, SECONDS)
    write_workload(tmp_path / "out" / "jobs.jsonl", jobs)
    assert read_arrivals(tmp_path / "out" / "jobs.jsonl") == arrivals
    assert read_workload(tmp_path / "out" / "jobs.jsonl") == jobs


@pytest.mark.parametrize(
    ("arrivals", "why"),
    [
        ([Arrival(1.0, SHORT)], "both"),
        ([Arrival(1.0, SHORT), Arrival(2.0, "other")], "both"),
        ([Arrival(0.0, SHORT), Arrival(0.0, LONG)], "at once"),
    ],
)
def test_jobs_of_other_kinds_are_refused(tmp_path: Path, arrivals: list[Arrival], why: str) -> None:
    jobs = as_workload(arrivals, {**SECONDS, "other": SECONDS[SHORT]})
    write_workload(tmp_path / "jobs.jsonl", jobs)
    with pytest.raises(ValueError, match=why):
        read_arrivals(tmp_path / "jobs.jsonl")


def test_the_gain_is_between_its_bounds() -> None:
    before_s, after_s = [float(index % 50 + 1) for index in range(150)], [0.1 + index % 7 / 10 for index in range(150)]
    low, high = gain_interval(before_s, after_s, seed=1)
    assert p99_gain(before_s, after_s) == p99(before_s) / p99(after_s) == pytest.approx(50 / 0.7)
    assert low <= 50 / 0.7 <= high
    assert (low, high) == gain_interval(before_s, after_s, seed=1)


def test_one_bad_delay_widens_the_interval() -> None:
    before_s = [10.0] * 100
    low, _ = gain_interval(before_s, [0.1] * 99 + [10.0], seed=1)
    assert low < p99_gain(before_s, [0.1] * 99 + [1.0])
    assert gain_interval(before_s, [0.1] * 100, seed=1) == (100.0, 100.0)


def test_small_delays_count_as_the_resolution() -> None:
    assert at_least(0.02, [-0.1, 0.01, 0.5]) == [0.02, 0.02, 0.5]
    assert relative_error(0.8, 1.0) == pytest.approx(0.2)


def test_a_suite_that_does_as_simulated_has_no_error() -> None:
    jobs = as_workload(scale_to_load(draw_arrivals(40, 10, seed=3), WORK_S, 0.7), SECONDS)
    alone = {kind: Solo([_passage(0.0, SECONDS[kind], SECONDS[kind].total_s)] * 5) for kind in KINDS}
    policies: tuple[PolicyName, ...] = ("fcfs", "stretch")
    runs = {policy: simulate(jobs, PolicySettings(policy), FleetSettings(1, block_s=0.05)) for policy in policies}
    passages = {
        policy: [_passage(each.job.arrival_s, each.job.seconds, each.latency_s) for each in run.outcomes]
        for policy, run in runs.items()
    }
    figures = MixedReport(jobs, alone, passages, block_s=0.05).figures(seed=1)
    assert figures["sim_error"] == figures["sim_error_as_run"] == 0.0
    assert figures["mean_delay_s"] == figures["sim_mean_delay_s"]
    assert figures["load"] == 0.7
    assert figures["slowdown"] == {policy: dict.fromkeys(KINDS, 1.0) for policy in policies}


def _passage(began_at: float, seconds: StageSeconds, latency_s: float) -> Passage:
    denoise_at = began_at + seconds.encode_s
    return Passage(
        began_at, denoise_at, denoise_at + seconds.denoise_s, began_at + latency_s, device_s=seconds.denoise_s
    )
