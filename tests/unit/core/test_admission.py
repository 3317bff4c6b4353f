"""Who is let in, and what those who are not are told."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.core.actions import RejectJob, Verdict
from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.events import JobSubmitted, TaskFinished, WorkerLost, WorkerSeen
from services.router.core.job import Stage, Task, WorkerInfo
from services.router.core.scheduler import Scheduler
from tests.scenarios.virtual_clock import VirtualClock, request, worker

POOL = PoolConfig(name="all", max_backlog_s=40.0, long_headroom=0.5, short_job_s=1.0, long_job_s=100.0, max_job_s=600.0)
CONFIG = SchedulerConfig(pools=(POOL,))


def fleet(denoisers: int = 1) -> list[WorkerInfo]:
    stages = [worker("e", Stage.ENCODE, slots=9), worker("d", Stage.DECODE, slots=9)]
    return stages + [worker(f"n{index}", Stage.DENOISE) for index in range(denoisers)]


def scheduler(*workers: WorkerInfo, config: SchedulerConfig = CONFIG) -> Scheduler:
    made = Scheduler(config)
    for info in workers or fleet():
        made.handle(WorkerSeen(info), 0.0)
    return made


def fill(it: Scheduler, *denoise_s: float, now: float = 0.0, **options: object) -> None:
    for index, seconds in enumerate(denoise_s):
        tenant = f"other{index}"  # a tenant each: start tags are the arrival
        actions = it.handle(JobSubmitted(request(f"{now}/{index}", seconds, tenant=tenant, **options)), now)  # type: ignore[arg-type]
        assert not isinstance(actions[0], RejectJob)


def judge(it: Scheduler, denoise_s: float, now: float = 0.0, **options: object) -> Verdict:
    return it.estimate_verdict(request("probe", denoise_s, **options), now)  # type: ignore[arg-type]


def test_an_idle_pool_takes_anything_up_to_max_job_s() -> None:
    assert judge(scheduler(), 600.0).admitted
    verdict = judge(scheduler(), 600.1)
    assert (verdict.admitted, verdict.reason, verdict.retry_after_s) == (False, "TOO_LONG", 0.0)


def test_the_level_falls_with_the_estimate() -> None:
    it = scheduler()
    fill(it, 10.0, 10.0, 10.0)  # 30 s
    assert judge(it, 10.1).backlog_s == 30.0
    assert judge(it, 10.1).limit_s == pytest.approx(40.0 * 0.75, rel=0.01)
    assert not judge(it, 11.0).admitted
    assert judge(it, 9.0).admitted
    assert judge(it, 8.1).backlog_s == 30.0  # it ranks ahead of them, but should not have ended when they are due
    assert judge(it, 7.9).backlog_s == 0.0


def test_who_keeps_others_waiting_finds_a_lower_level() -> None:
    it = scheduler(*fleet(2))
    for index in range(6):
        it.handle(JobSubmitted(request(f"ann{index}", 10.0, tenant="ann")), 0.0)
    alone = judge(it, 10.1, tenant="ann")
    assert (alone.backlog_s, alone.limit_s) == (30.0, judge(it, 10.1, tenant="cid").limit_s)
    it.handle(JobSubmitted(request("bob", 1.0, tenant="bob")), 0.0)
    level_s = judge(it, 10.1, tenant="cid").limit_s
    assert judge(it, 10.1, tenant="ann").limit_s == pytest.approx(level_s - 0.08 * 60.0 / 2)
    assert judge(it, 10.1, tenant="ann", priority_class="premium").limit_s == pytest.approx(level_s - 0.08 * 60.0 / 4)
    # What ranks behind costs nobody anything.
    assert judge(it, 1.0, tenant="ann").limit_s == judge(it, 1.0, tenant="cid").limit_s


def test_accepted_long_jobs_keep_no_short_one_out() -> None:
    it = scheduler()
    fill(it, *[500.0] * 1)
    verdict = judge(it, 2.0)
    assert verdict.admitted
    assert verdict.backlog_s == 0.0
    assert not judge(it, 510.0).admitted


def test_backlog_is_per_worker() -> None:
    it = scheduler(*fleet(denoisers=4))
    fill(it, *[10.0] * 8)
    assert judge(it, 11.0).backlog_s == 20.0


def test_the_worst_stage_decides() -> None:
    it = scheduler(*fleet(denoisers=4))
    fill(it, *[1.0] * 4, decode_s=9.0)
    verdict = judge(it, 11.0)
    assert (verdict.backlog_s, verdict.reason) == (36.0, "OVERLOADED")


def test_work_on_workers_that_cannot_run_the_model_does_not_count() -> None:
    stages = [worker("e", Stage.ENCODE, "mn", slots=9), worker("d", Stage.DECODE, "mn", slots=9)]
    it = scheduler(*stages, worker("n1", Stage.DENOISE, "m"), worker("n2", Stage.DENOISE, "n"))
    fill(it, *[10.0] * 3)
    assert judge(it, 11.0, model="n").backlog_s == 0.0
    assert judge(it, 11.0, model="m").backlog_s == 30.0
    it.handle(WorkerSeen(worker("n2", Stage.DENOISE, "mn")), 0.0)
    assert judge(it, 11.0, model="n").backlog_s == 15.0
    assert judge(it, 11.0, model="m").backlog_s == 15.0


@pytest.mark.parametrize("missing", Stage)
def test_no_worker_for_one_stage_is_no_worker(missing: Stage) -> None:
    it = scheduler(*(info for info in fleet() if info.stage is not missing))
    assert judge(it, 1.0).reason == "NO_WORKER"
    assert judge(scheduler(), 1.0, model="unknown").reason == "NO_WORKER"


@pytest.mark.parametrize("missing", Stage)
def test_a_worker_that_went_is_waited_for_a_while(missing: Stage) -> None:
    """Meanwhile its backlog counts as if it were there."""
    it = scheduler()
    [gone] = [info for info in fleet() if info.stage is missing]
    it.handle(WorkerLost(gone.worker_id), 10.0)
    first = judge(it, 1.0, now=10.0)
    assert (first.admitted, first.missing) == (True, (missing,))
    denoise_s = 9.0 if missing is Stage.DENOISE else 1.0
    fill(it, *[denoise_s] * 4, now=10.0, **({} if missing is Stage.DENOISE else {f"{missing.value}_s": 9.0}))
    verdict = judge(it, 11.0, now=10.0)
    assert (verdict.backlog_s, verdict.reason) == (36.0, "OVERLOADED")
    late_s = 10.0 + CONFIG.absence_grace_s
    assert judge(it, 0.5, now=late_s).reason != "NO_WORKER"
    assert judge(it, 0.5, now=late_s + 0.1).reason == "NO_WORKER"
    it.handle(WorkerSeen(gone), late_s + 0.1)
    assert judge(it, 0.5, now=late_s + 0.1).missing == ()


def test_a_deadline_that_the_prediction_cannot_meet_is_refused() -> None:
    it = scheduler()
    fill(it, 10.0)
    parts = {"encode_s": 1.0, "decode_s": 2.0}
    assert judge(it, 20.0, **parts).wait_s == 10.0
    assert judge(it, 20.0, deadline_s=32.0, **parts).admitted
    verdict = judge(it, 20.0, deadline_s=31.9, **parts)
    assert (verdict.reason, verdict.retry_after_s) == ("DEADLINE_UNREACHABLE", 0.0)


def test_the_queue_is_bounded() -> None:
    it = scheduler(config=SchedulerConfig(pools=(POOL,), max_queued_jobs=3))
    fill(it, 4.0, 4.0)
    assert judge(it, 1.0).admitted
    it.handle(JobSubmitted(request("third", 4.0)), 1.0)
    verdict = judge(it, 1.0, tenant="new", now=1.0)
    assert (verdict.reason, verdict.retry_after_s) == ("QUEUE_FULL", 4.0)


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "pools"])
def test_policies_of_the_source_shed_nothing(policy: str) -> None:
    it = scheduler(config=SchedulerConfig(policy=policy, pools=(POOL,)))  # type: ignore[arg-type]
    fill(it, *[500.0] * 20)
    assert judge(it, 500.0).admitted


def test_after_retry_after_the_job_is_admitted() -> None:
    """If nobody else comes, and the estimates hold."""
    clock = VirtualClock(Scheduler(CONFIG), progress_s=0.25)
    clock.fleet(*fleet(denoisers=2))
    for index in range(12):
        clock.at(1.0, JobSubmitted(request(f"{index}", 10.0 + index, tenant=str(index))))
    clock.at(1.0, JobSubmitted(request("refused", 50.0)))
    clock.run(until_s=1.0)
    refused = clock.refused["refused"]
    assert refused.reason == "OVERLOADED"
    then_s = 1.0 + refused.retry_after_s
    for early_s, admitted in ((5.0, False), (-1.0, True)):
        clock.run(until_s=then_s - early_s)
        again = clock.scheduler.estimate_verdict(request("again", 50.0), then_s - early_s)
        assert again.admitted == admitted


@given(
    accepted=st.lists(st.tuples(st.floats(0.0, 300.0), st.floats(0.0, 30.0), st.sampled_from("tu")), max_size=12),
    sizes=st.lists(st.floats(0.001, 900.0), min_size=2, max_size=6, unique=True),
    deadline_s=st.sampled_from([None, 60.0]),
)
def test_under_overload_the_longest_go_first(
    accepted: list[tuple[float, float, str]], sizes: list[float], deadline_s: float | None
) -> None:
    it = scheduler()
    for index, (denoise_s, decode_s, tenant) in enumerate(accepted):
        it.handle(JobSubmitted(request(str(index), denoise_s, decode_s=decode_s, tenant=tenant)), 0.0)
    admitted = [judge(it, size, decode_s=size / 10, deadline_s=deadline_s).admitted for size in sorted(sizes)]
    assert admitted == sorted(admitted, reverse=True)
    assert all(judge(it, size).limit_s < inf for size in sizes)


def test_a_job_waits_for_a_slot_even_if_it_ranks_ahead_of_all_that_runs() -> None:
    it = scheduler()
    it.handle(JobSubmitted(request("long", 8.0)), 0.0)
    it.handle(TaskFinished(Task("long", Stage.ENCODE), 0.0), 0.0)
    assert judge(it, 1.0).wait_s == 8.0
    assert judge(it, 1.0, deadline_s=4.0).reason == "DEADLINE_UNREACHABLE"
    assert judge(it, 1.0, deadline_s=10.0).admitted
