"""Ranks: what is overtaken by what, and how tenants share."""

import pytest

from services.router.core.config import PolicyName, PoolConfig, SchedulerConfig
from services.router.core.events import JobSubmitted, TaskProgressed, Ticked, WorkerSeen
from services.router.core.job import Stage, Task, WorkerInfo
from services.router.core.scheduler import Scheduler
from tests.scenarios.virtual_clock import VirtualClock, request, worker

POOLS = (PoolConfig(name="all", max_backlog_s=1e6, max_job_s=1e6),)


def scheduler(policy: PolicyName = "stretch", denoisers: int = 1, **weights: float) -> Scheduler:
    made = Scheduler(SchedulerConfig(policy=policy, pools=POOLS, tenant_weights=weights))
    for info in fleet(denoisers):
        made.handle(WorkerSeen(info), 0.0)
    return made


def fleet(denoisers: int = 1) -> list[WorkerInfo]:
    stages = [worker("e", Stage.ENCODE), worker("d", Stage.DECODE)]
    return stages + [worker(f"n{index}", Stage.DENOISE) for index in range(denoisers)]


def clock_with_one_denoiser() -> VirtualClock:
    clock = VirtualClock(Scheduler(SchedulerConfig(pools=POOLS)))
    clock.fleet(*fleet())
    return clock


def rank(it: Scheduler, now: float, denoise_s: float, **options: object) -> float:
    return it.estimate_verdict(request("probe", denoise_s, **options), now).rank  # type: ignore[arg-type]


@pytest.mark.parametrize(("policy", "expected"), [("fcfs", 100.0), ("pools", 100.0), ("sjf", 8.0), ("stretch", 132.0)])
def test_the_rank_of_each_policy(policy: PolicyName, expected: float) -> None:
    assert rank(scheduler(policy), 100.0, 8.0) == expected


def test_time_never_runs_backwards() -> None:
    it = scheduler("fcfs")
    it.handle(JobSubmitted(request("a", 1.0)), 50.0)
    it.handle(Ticked(), 20.0)
    assert rank(it, 10.0, 1.0) == 50.0


def test_a_tenant_is_put_off_by_what_its_share_takes_beyond_its_stretch() -> None:
    it = scheduler(denoisers=2, c=2.0)
    for index in range(12):
        it.handle(JobSubmitted(request(f"a{index:02}", 10.0, tenant="a")), 0.0)
    own_s = 12 * 10.0
    probe = {"tenant": "a"}
    # The share of who is alone, two denoisers, does the first eight within 4 times their own time.
    ranks = [it.job(f"a{index:02}").rank for index in range(12)]  # type: ignore[union-attr]
    assert ranks == [40.0] * 8 + [45.0, 50.0, 55.0, 60.0]
    # Only those count that would rank ahead.
    assert rank(it, 0.0, 1.0, **probe) == 4.0
    assert rank(it, 0.0, 14.0, **probe) == own_s * 1 / 2 + 7.0
    # Another with work halves its share; one of weight 2 leaves it a quarter.
    it.handle(JobSubmitted(request("b", 10.0, tenant="b")), 0.0)
    assert rank(it, 0.0, 14.0, **probe) == own_s * 2 / 2 + 7.0
    it.handle(JobSubmitted(request("c", 10.0, tenant="c")), 0.0)
    assert rank(it, 0.0, 14.0, **probe) == own_s * 4 / 2 + 7.0
    assert rank(it, 0.0, 14.0, priority_class="premium", **probe) == own_s * 4 / 2 / 2 + 7.0
    assert rank(it, 0.0, 14.0, tenant="new") == 56.0
    assert rank(it, 0.0, 100.0, **probe) == 400.0


def test_a_thousand_jobs_of_one_user_do_not_push_back_anothers_first() -> None:
    clock = clock_with_one_denoiser()
    for index in range(1000):
        clock.at(1.0, JobSubmitted(request(f"flood{index:04}", 2.0, tenant="flood")))
    clock.at(2.0, JobSubmitted(request("single", 2.0, tenant="single")))
    clock.run()
    assert clock.waits["single"] <= 4 * 2.0
    assert clock.finishes["single"] - 2.0 <= 5 * 2.0
    assert len(clock.finishes) == 1001


def test_who_had_the_fleet_alone_owes_nothing_afterwards() -> None:
    clock = clock_with_one_denoiser()
    for index in range(50):
        clock.at(1.0, JobSubmitted(request(f"{index}", 10.0, tenant="a")))
    clock.run()
    assert rank(clock.scheduler, 1000.0, 10.0, tenant="a") == rank(clock.scheduler, 1000.0, 10.0, tenant="b")


def test_equal_jobs_of_one_tenant_keep_their_order_though_the_work_ahead_shrinks() -> None:
    it = scheduler()
    for index, fraction in enumerate([0.0, 0.5, 0.8, 0.9]):
        # The first turns out to be faster than its estimate, and the estimates are learnt meanwhile.
        it.handle(TaskProgressed(Task("a0", Stage.ENCODE), fraction), 0.01 * index)
        it.handle(JobSubmitted(request(f"a{index}", 10.0 - 0.3 * index, encode_s=2.0)), 0.01 * index)
    ranks = [it.job(f"a{index}").rank for index in range(4)]  # type: ignore[union-attr]
    assert ranks == sorted(ranks)


def test_a_clearly_shorter_job_overtakes_ones_of_the_same_tenant() -> None:
    it = scheduler()
    for index in range(9):
        it.handle(JobSubmitted(request(f"a{index}", 10.0)), 0.0)
    assert rank(it, 0.0, 1.0) < 40.0
    assert rank(it, 0.0, 10.0, priority_class="premium") < it.job("a8").rank  # type: ignore[union-attr]
