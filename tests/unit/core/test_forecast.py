"""Predicted starts: what dispatch then does, if nobody else comes."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from services.router.core.config import Borrow, PolicyName, PoolConfig, SchedulerConfig
from services.router.core.events import JobSubmitted, TaskFinished
from services.router.core.job import Stage, Task, WorkerInfo
from services.router.core.scheduler import Scheduler
from services.router.simulate.machines import MachineModel
from tests.scenarios.virtual_clock import VirtualClock, request, worker

HUGE_S = 1e9
BLOCK_S = 1e-3


def pools(borrow: Borrow) -> tuple[PoolConfig, ...]:
    """Jobs of model "m" have one denoiser of their own, those of "n" the others."""
    bounds = {"max_backlog_s": HUGE_S, "max_job_s": HUGE_S}
    return (
        PoolConfig("few", count=1, models=("m",), borrow=borrow, **bounds),
        PoolConfig("many", models=("n",), borrow=borrow, **bounds),
    )


def fleet(denoisers: int, slots: int) -> list[WorkerInfo]:
    stages = [worker("e", Stage.ENCODE, "mn", slots=99), worker("d", Stage.DECODE, "mn", slots=99)]
    return stages + [worker(f"n{index}", Stage.DENOISE, "mn", slots=slots) for index in range(denoisers)]


def submission(index: int, model: str, denoise_s: float) -> JobSubmitted:
    """A job of a tenant of its own."""
    return JobSubmitted(request(f"{index:02}", denoise_s, model=model, tenant=str(index)))


JOBS = st.lists(st.tuples(st.sampled_from("mn"), st.floats(0.1, 100.0)), min_size=1, max_size=14)


@given(jobs=JOBS, denoisers=st.integers(1, 5), policy=st.sampled_from(["fcfs", "pools"]))
def test_in_the_order_of_arrival_it_is_exact(jobs: list[tuple[str, float]], denoisers: int, policy: PolicyName) -> None:
    config = SchedulerConfig(policy=policy, pools=pools("none"))
    clock = VirtualClock(Scheduler(config))
    clock.fleet(*fleet(denoisers, slots=1))
    for index, job in enumerate(jobs):
        clock.at(0.0, submission(index, *job))
    clock.run()
    assert clock.waits == pytest.approx(clock.predicted_waits)


@given(last=st.floats(0.1, 200.0), jobs=JOBS, denoisers=st.integers(1, 5))
def test_the_last_to_come_starts_when_it_was_told(last: float, jobs: list[tuple[str, float]], denoisers: int) -> None:
    """It overtakes whom it ranks ahead of, and waits for the others."""
    config = SchedulerConfig(pools=(PoolConfig("all", max_backlog_s=HUGE_S, max_job_s=HUGE_S),))
    clock = VirtualClock(Scheduler(config), MachineModel(block_s=BLOCK_S))
    clock.fleet(*fleet(denoisers, slots=20))
    for index, job in enumerate([*jobs, ("m", last)]):
        clock.at(0.0 if index < len(jobs) else 0.05, submission(index, *job))
    clock.run(until_s=0.04)
    assume(denoisers == 1 or not clock.scheduler.pools()[0].queued)
    clock.run()
    name = f"{len(jobs):02}"
    assert clock.waits[name] == pytest.approx(clock.predicted_waits[name], abs=2 * BLOCK_S)


@given(
    jobs=JOBS,
    sizes=st.lists(st.floats(0.1, 300.0), min_size=2, max_size=6),
    denoisers=st.integers(2, 6),
    slots=st.integers(1, 4),
    borrow=st.sampled_from(["none", "idle", "preemptible"]),
)
def test_a_longer_job_starts_no_earlier(
    jobs: list[tuple[str, float]], sizes: list[float], denoisers: int, slots: int, borrow: Borrow
) -> None:
    it = encoded(SchedulerConfig(pools=pools(borrow)), fleet(denoisers, slots), *jobs)
    for model in "mn":
        waits_s = [it.estimate_verdict(request("probe", size, model=model), 0.0).wait_s for size in sorted(sizes)]
        assert waits_s == pytest.approx(sorted(waits_s))


@pytest.mark.parametrize(("borrow", "wait_s"), [("none", 50.0), ("idle", 0.0), ("preemptible", 0.0)])
def test_an_idle_denoiser_of_another_pool_is_as_good_as_an_own_one(borrow: Borrow, wait_s: float) -> None:
    config = SchedulerConfig(pools=pools(borrow))
    it = encoded(config, fleet(2, slots=2), ("m", 50.0))
    assert [(pool.workers, pool.borrowable) for pool in it.pools()] == [(1, int(borrow != "none")), (1, 0)]
    assert it.estimate_verdict(request("probe", 60.0, model="m"), 0.0).wait_s == wait_s


@pytest.mark.parametrize(("borrow", "wait_s"), [("none", 500.0), ("idle", 80.0)])
def test_a_busy_one_counts_from_when_it_will_be_idle(borrow: Borrow, wait_s: float) -> None:
    it = encoded(SchedulerConfig(pools=pools(borrow)), fleet(2, slots=2), ("m", 500.0), ("n", 80.0))
    assert it.estimate_verdict(request("probe", 600.0, model="m"), 0.0).wait_s == wait_s
    # Its own pool's jobs go first there.
    submit(it, "2", "n", 300.0)
    assert it.estimate_verdict(request("probe", 600.0, model="m"), 0.0).wait_s == 500.0


def test_pools_that_borrow_preemptibly_share_their_denoisers_by_rank() -> None:
    it = encoded(SchedulerConfig(pools=pools("preemptible")), fleet(2, slots=2), ("m", 500.0), ("n", 80.0))
    assert it.estimate_verdict(request("probe", 60.0, model="m"), 0.0).wait_s == 0.0
    assert it.estimate_verdict(request("probe", 600.0, model="m"), 0.0).wait_s == 80.0
    submit(it, "2", "n", 300.0)  # it goes ahead of the longer one
    assert it.estimate_verdict(request("probe", 600.0, model="m"), 0.0).wait_s == 80.0


def test_a_long_queue_is_averaged_and_says_much_the_same() -> None:
    told = []
    for count in (60, 70):
        it = encoded(SchedulerConfig(policy="fcfs"), fleet(4, slots=1), *[("m", 10.0)] * count)
        told.append(it.estimate_verdict(request("probe", 10.0), 1.0).wait_s)
    assert told == pytest.approx([150.0, 175.0])


def test_a_large_fleet_is_averaged() -> None:
    # Those of 50 s count as long, in a lane of their own of which none waits.
    jobs = [("m", 50.0)] * 100 + [("m", 10.0)] * 200
    it = encoded(SchedulerConfig(policy="fcfs"), fleet(200, slots=1), *jobs)
    assert it.estimate_verdict(request("probe", 10.0), 1.0).wait_s == pytest.approx(35.0, rel=0.2)


def encoded(config: SchedulerConfig, workers: list[WorkerInfo], *jobs: tuple[str, float]) -> Scheduler:
    """A scheduler with jobs whose prompts are encoded."""
    clock = VirtualClock(Scheduler(config))
    clock.fleet(*workers)
    clock.run(until_s=0.0)
    for index, (model, denoise_s) in enumerate(jobs):
        submit(clock.scheduler, str(index), model, denoise_s)
    return clock.scheduler


def submit(it: Scheduler, name: str, model: str, denoise_s: float) -> None:
    it.handle(JobSubmitted(request(name, denoise_s, model=model, tenant=name)), 0.0)
    it.handle(TaskFinished(Task(name, Stage.ENCODE), 0.0), 0.0)
