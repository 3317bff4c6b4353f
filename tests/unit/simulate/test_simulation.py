"""Whole runs: stages, losses, loads, prices, deadlines, lending."""

from random import Random

import pytest

from services.router.core.config import SchedulerConfig
from services.router.core.events import JobSubmitted, WorkerLost, WorkerSeen
from services.router.core.job import Stage
from services.router.core.scheduler import Scheduler
from services.router.simulate.machines import MachineModel
from services.router.simulate.percentiles import percentile
from services.router.simulate.pricing import LearntPricing, NoisyPricing
from services.router.simulate.report import report
from services.router.simulate.settings import FleetSettings, PolicySettings, Pool, parse_policy, parse_pool
from services.router.simulate.simulation import Run, simulate
from tests.scenarios.virtual_clock import VirtualClock, request, worker
from tests.unit.simulate.jobs import job, mixed

ONE = FleetSettings(workers=1)


def latencies(run: Run) -> list[float]:
    return [outcome.latency_s for outcome in run.outcomes]


def test_stages_follow_one_another_and_overlap_between_jobs() -> None:
    jobs = [job(n, 0.0, 2.0, encode_s=0.5, decode_s=1.0) for n in range(3)]
    assert latencies(simulate(jobs, PolicySettings(), ONE)) == pytest.approx([3.5, 5.5, 7.5])
    inline = FleetSettings(workers=1, encoders=0, decoders=0)
    assert latencies(simulate(jobs, PolicySettings(), inline)) == pytest.approx([3.5, 7.0, 10.5])


def test_an_image_takes_the_device_from_a_video_at_the_next_block() -> None:
    jobs = [job(0, 0.0, 60.0, "video"), job(1, 10.05, 2.0)]
    video, image = simulate(jobs, PolicySettings(), FleetSettings(workers=1, block_s=0.1)).outcomes
    assert image.wait_s == pytest.approx(0.05)
    assert (image.latency_s, video.latency_s) == (pytest.approx(2.05), pytest.approx(62.0))
    _, image = simulate(jobs, PolicySettings(), FleetSettings(workers=1, block_s=0.0)).outcomes
    assert image.wait_s == pytest.approx(49.95)


@pytest.mark.parametrize(("checkpoint_s", "finish_s"), [(10.0, 28.0 + 30.0), (0.0, 28.0 + 50.0)])
def test_a_lost_worker_costs_what_was_done_since_the_last_checkpoint(checkpoint_s: float, finish_s: float) -> None:
    clock = VirtualClock(Scheduler(SchedulerConfig()), MachineModel(checkpoint_s=checkpoint_s))
    clock.fleet(worker("e", Stage.ENCODE), worker("d", Stage.DECODE), worker("n", Stage.DENOISE))
    clock.at(0.0, JobSubmitted(request("a", 50.0)))
    clock.at(23.0, WorkerLost("n"))
    clock.at(28.0, WorkerSeen(worker("n", Stage.DENOISE)))
    clock.run()
    assert clock.finishes == {"a": finish_s}


def test_workers_are_lost_as_often_as_it_is_said() -> None:
    jobs = [job(n, 10.0 * n, 8.0) for n in range(200)]
    calm = simulate(jobs, PolicySettings("fcfs"), ONE)
    stormy = simulate(jobs, PolicySettings("fcfs"), FleetSettings(workers=1, mtbf_s=300.0, repair_s=20.0), seed=1)
    assert stormy.busy_s > calm.busy_s - 8.0 * sum(bool(outcome.refusal) for outcome in stormy.outcomes)
    assert sum(outcome.latency_s > 8.5 for outcome in stormy.outcomes) > 5


def test_a_model_that_is_not_resident_is_loaded_once() -> None:
    jobs = [job(n, 100.0 * n, 1.0, model="ab"[n // 2]) for n in range(4)]
    run = simulate(jobs, PolicySettings(), FleetSettings(workers=1, load_s=7.0, resident_models=1))
    assert latencies(run) == pytest.approx([1.0, 1.0, 8.0, 1.0])


def test_a_deadline_that_cannot_be_met_is_refused() -> None:
    jobs = [job(0, 0.0, 10.0), job(1, 0.0, 10.0, deadline_s=15.0), job(2, 0.0, 10.0, deadline_s=60.0)]
    found = simulate(jobs, PolicySettings("fcfs"), ONE).outcomes
    assert [outcome.refusal for outcome in found] == ["", "DEADLINE_UNREACHABLE", ""]


def test_the_longest_are_refused_under_overload_unless_admission_is_off() -> None:
    jobs = [job(n, 0.1 * n, 5.0 if n % 2 else 50.0) for n in range(40)]
    assert not report(simulate(jobs, PolicySettings(no_admission=True), ONE))["rejected"]
    lengths = report(simulate(jobs, PolicySettings(), ONE))["lengths"]
    assert lengths["1-10 s"]["rejected"] < lengths["30-60 s"]["rejected"]
    capped = report(simulate(jobs, PolicySettings("fcfs", max_queued=3), ONE))
    assert capped["rejected"] == {"QUEUE_FULL": 37}


def test_estimates_decide_the_order_and_the_truth_the_time() -> None:
    jobs = [job(n, 0.01 * n, 1.0 + n % 7) for n in range(50)]
    exact = simulate(jobs, PolicySettings("sjf"), ONE)
    wrong = simulate(jobs, PolicySettings("sjf"), ONE, pricing=NoisyPricing(2.0, Random(1)))
    assert exact.span_s == pytest.approx(wrong.span_s)
    assert sum(latencies(exact)) < sum(latencies(wrong))


def test_the_router_learns_from_the_jobs_that_end() -> None:
    jobs = [job(n, 100.0 * n, 2.0 if n % 2 else 90.0, model="ab"[n % 2]) for n in range(40)]
    pricing = LearntPricing()
    simulate(jobs, PolicySettings(), ONE, pricing=pricing)
    assert pricing.price(jobs[1]).total_s < 10 < pricing.price(jobs[0]).total_s


def test_pools_are_reserved_and_lent() -> None:
    pools = FleetSettings(pools=(Pool("image", 1), Pool("video", 1)))
    jobs = [job(0, 0.0, 60.0, "video"), job(1, 0.0, 60.0, "video"), job(2, 10.0, 2.0)]
    reserved = simulate(jobs, PolicySettings("pools"), pools)
    assert latencies(reserved) == pytest.approx([60.0, 120.0, 2.0])
    lent = simulate(jobs, PolicySettings("stretch"), pools)
    assert latencies(lent)[2] <= 2.15 + 1e-9
    assert latencies(lent)[1] < 70.0


def test_pools_must_fit_the_jobs() -> None:
    with pytest.raises(ValueError, match="the jobs are image, video: give each kind one pool"):
        simulate(mixed(), PolicySettings(), FleetSettings(pools=(Pool("image", 1),)))
    jobs = [job(0, 0.0, 1.0, model="m"), job(1, 0.0, 1.0, "video", model="m")]
    with pytest.raises(ValueError, match="a model has jobs of two kinds"):
        simulate(jobs, PolicySettings(), FleetSettings(pools=(Pool("image", 1), Pool("video", 1))))


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "pools", "stretch"])
def test_every_job_ends_and_the_busy_time_is_their_own(policy: str) -> None:
    run = simulate(mixed(), parse_policy(policy, PolicySettings()), FleetSettings(workers=2), record_spans=True)
    assert all(outcome.succeeded for outcome in run.outcomes)
    assert run.busy_s == pytest.approx(sum(outcome.job.service_s for outcome in run.outcomes))
    assert sum(span.end_s - span.start_s for span in run.spans) == pytest.approx(run.busy_s)


def test_policies_and_pools_by_name() -> None:
    parsed = parse_policy("fcfs:max-queued=20,slack=0.7", PolicySettings(no_tenants=True))
    assert parsed == PolicySettings("fcfs", max_queued=20, no_tenants=True, slack=0.7)
    assert parse_policy(parsed.name, PolicySettings()) == parsed
    assert (PolicySettings().name, parse_pool("video=2x4")) == ("stretch", Pool("video", 2, 4))
    for text in ("lifo", "fcfs:queue=2", "fcfs:max-queued=many", "stretch:no-tenants=on"):
        with pytest.raises(ValueError, match=r"polic"):
            parse_policy(text, PolicySettings())
    for text in ("video", "video=", "video=2y", "=3", "video=0"):
        with pytest.raises(ValueError, match="pool"):
            parse_pool(text)


def test_percentiles_by_the_rule_of_the_source() -> None:
    assert [percentile([3.0, 1.0, 2.0, 4.0], q) for q in (0.0, 0.5, 0.99, 1.0)] == [1.0, 3.0, 4.0, 4.0]
    assert percentile([], 0.5) is None
