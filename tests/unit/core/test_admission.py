"""Jobs that are admitted, and what those that are not are told."""

from dataclasses import replace
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

POOL = PoolConfig(name="all", max_job_s=600.0)
CONFIG = SchedulerConfig(pools=(POOL,))
OPEN = SchedulerConfig(pools=(replace(POOL, max_backlog_s=inf),))
LEVEL = SchedulerConfig(pools=(replace(POOL, max_backlog_s=35.0),))


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


def test_a_job_finds_room_for_a_part_of_its_own_promise() -> None:
    it = scheduler()
    fill(it, 10.0, 10.0)
    # Due at 40 s; a job of 10 s may find half of 5 × 10 s ahead.
    verdict = judge(it, 10.0)
    assert (verdict.admitted, verdict.backlog_s, verdict.limit_s) == (True, 20.0, 25.0)
    it.handle(JobSubmitted(request("third", 10.0, tenant="third")), 0.0)
    verdict = judge(it, 10.0)
    assert (verdict.reason, verdict.backlog_s, verdict.limit_s) == ("OVERLOADED", 30.0, 25.0)
    assert verdict.retry_after_s == 5.0


def test_a_shorter_job_that_ends_before_the_others_are_due_is_still_admitted() -> None:
    it = scheduler()
    fill(it, 10.0, 10.0, 10.0)
    verdict = judge(it, 2.0)
    assert (verdict.admitted, verdict.backlog_s) == (True, 0.0)


def test_a_longer_job_than_one_that_is_shed_is_shed_though_its_own_promise_has_room() -> None:
    it = scheduler()
    fill(it, 10.0, 10.0, 10.0)
    verdict = judge(it, 20.0)  # 30 s ahead of 50 s of its own
    assert (verdict.admitted, verdict.backlog_s, verdict.limit_s) == (False, 30.0, 25.0)


def test_under_overload_jobs_beyond_the_cutoff_find_less_room_the_longer_they_are() -> None:
    it = scheduler(*fleet(2), config=replace(CONFIG, overload_window=6))
    for index, length_s in enumerate([1.0, 1.0, 1.0, 1.0, 10.0, 10.0]):
        before = judge(it, 40.0, now=0.2 * index, tenant="bob").limit_s
        it.handle(JobSubmitted(request(str(index), length_s, tenant="ann")), 0.2 * index)
    assert before > 60.0  # five arrivals say nothing yet
    # Two of 1 s fill half of the time of two denoisers, from 0 to 2 s: longer ones find less.
    verdicts = [judge(it, length_s, now=1.0, tenant="bob") for length_s in (1.0, 1.3, 4.0)]
    assert [verdict.limit_s for verdict in verdicts[:2]] == [2.5, pytest.approx(2.5 / 1.25)]
    # One of 1.6 s is shed, and so is every longer one.
    assert (verdicts[2].reason, verdicts[2].backlog_s, verdicts[2].limit_s) == ("OVERLOADED", 2.0, 1.6)


def test_a_job_shorter_than_all_arrivals_finds_no_less_room_than_the_shortest_of_them() -> None:
    it = scheduler(config=replace(CONFIG, overload_window=1))
    fill(it, 10.0)
    assert judge(it, 5.0).limit_s == judge(it, 10.0).limit_s == 25.0


def test_a_tenant_that_keeps_others_waiting_finds_less_room() -> None:
    it = scheduler(*fleet(2), config=LEVEL)
    for index in range(6):
        it.handle(JobSubmitted(request(f"ann{index}", 10.0, tenant="ann")), 0.0)
    alone = judge(it, 10.1, tenant="ann")
    assert (alone.backlog_s, alone.limit_s) == (30.0, 35.0)
    it.handle(JobSubmitted(request("bob", 1.0, tenant="bob")), 0.0)
    assert judge(it, 10.1, tenant="cid").limit_s == 35.0
    assert judge(it, 10.1, tenant="ann").limit_s == pytest.approx(35.0 - 0.08 * 60.0 / 2)
    assert judge(it, 10.1, tenant="ann", priority_class="premium").limit_s == pytest.approx(35.0 - 0.08 * 60.0 / 4)
    # What ranks behind costs nobody anything.
    assert judge(it, 1.0, tenant="ann").limit_s == judge(it, 1.0, tenant="cid").limit_s


@pytest.mark.parametrize("tiny_s", [5e-324, 1e-300, 1e-9])
def test_jobs_of_no_length_worth_mentioning_make_no_endless_steps(tiny_s: float) -> None:
    it = scheduler()
    fill(it, tiny_s, 10.0)
    assert judge(it, 1e300).reason == "TOO_LONG"
    assert judge(it, 10.0).admitted


def test_accepted_long_jobs_keep_no_short_one_out() -> None:
    it = scheduler()
    fill(it, 500.0, 400.0)
    verdict = judge(it, 2.0)
    assert verdict.admitted
    assert verdict.backlog_s == 0.0


def test_a_level_in_seconds_takes_the_place_of_the_promise() -> None:
    it = scheduler(config=LEVEL)
    fill(it, 10.0, 10.0, 10.0)
    assert judge(it, 10.0).admitted
    fill(it, 10.0, now=1.0)
    verdict = judge(it, 10.0, now=1.0)
    assert (verdict.reason, verdict.backlog_s, verdict.limit_s) == ("OVERLOADED", 40.0, 35.0)


def test_backlog_is_per_worker() -> None:
    it = scheduler(*fleet(denoisers=4), config=OPEN)
    fill(it, *[10.0] * 8)
    assert judge(it, 11.0).backlog_s == 20.0


def test_the_worst_stage_decides() -> None:
    it = scheduler(*fleet(denoisers=4), config=LEVEL)
    fill(it, *[1.0] * 4, decode_s=9.0)
    verdict = judge(it, 11.0)
    assert (verdict.backlog_s, verdict.reason) == (36.0, "OVERLOADED")


def test_work_on_workers_that_cannot_run_the_model_does_not_count() -> None:
    stages = [worker("e", Stage.ENCODE, "mn", slots=9), worker("d", Stage.DECODE, "mn", slots=9)]
    it = scheduler(*stages, worker("n1", Stage.DENOISE, "m"), worker("n2", Stage.DENOISE, "n"), config=OPEN)
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
    it = scheduler(config=LEVEL)
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
    it = scheduler(config=replace(OPEN, max_queued_jobs=3))
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
        clock.at(0.1 * index, JobSubmitted(request(f"{index}", 10.0 + index, tenant=str(index))))
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
    accepted=st.lists(
        st.tuples(st.floats(0.0, 300.0), st.floats(0.0, 30.0), st.sampled_from("tu"), st.floats(0.0, 50.0)), max_size=12
    ),
    sizes=st.lists(st.floats(0.001, 900.0), min_size=2, max_size=6, unique=True),
    deadline_s=st.sampled_from([None, 60.0]),
)
def test_under_overload_the_longest_go_first(
    accepted: list[tuple[float, float, str, float]], sizes: list[float], deadline_s: float | None
) -> None:
    it, now = scheduler(), 0.0
    for index, (denoise_s, decode_s, tenant, later_s) in enumerate(accepted):
        now += later_s
        it.handle(JobSubmitted(request(str(index), denoise_s, decode_s=decode_s, tenant=tenant)), now)
    deadline_s = None if deadline_s is None else now + deadline_s
    admitted = [judge(it, size, now, decode_s=size / 10, deadline_s=deadline_s).admitted for size in sorted(sizes)]
    assert admitted == sorted(admitted, reverse=True)
    assert all(judge(it, size, now).limit_s < inf for size in sizes)


def test_a_job_waits_for_a_slot_even_if_it_ranks_ahead_of_all_that_runs() -> None:
    it = scheduler()
    it.handle(JobSubmitted(request("long", 8.0)), 0.0)
    it.handle(TaskFinished(Task("long", Stage.ENCODE), 0.0), 0.0)
    assert judge(it, 1.0).wait_s == 8.0
    assert judge(it, 1.0, deadline_s=4.0).reason == "DEADLINE_UNREACHABLE"
    assert judge(it, 1.0, deadline_s=10.0).admitted
