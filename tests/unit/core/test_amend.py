"""Accepted jobs that are to run more, or less: judged by the total, without their own work in the way."""

from dataclasses import replace

import pytest

from services.router.core.actions import AmendJob, RejectAmendment, Verdict
from services.router.core.events import JobAmendRequested, JobSubmitted, LatentsReady, TaskFinished, TaskProgressed
from services.router.core.job import JobRequest, Stage, Task
from services.router.core.scheduler import Scheduler
from tests.scenarios.invariants import check
from tests.scenarios.virtual_clock import request
from tests.unit.core.test_admission import fill, judge, scheduler


def amended(it: Scheduler, job: JobRequest, denoise_s: float, now: float) -> AmendJob | RejectAmendment:
    seconds = replace(job.seconds, denoise_s=denoise_s)
    action = it.handle(JobAmendRequested(replace(job, seconds=seconds)), now)[0]
    check(it)
    assert isinstance(action, AmendJob | RejectAmendment)
    return action


def admitted(it: Scheduler, name: str, denoise_s: float, now: float = 0.0, **options: object) -> JobRequest:
    """A job whose denoise runs, if it is the first."""
    made = replace(request(name, denoise_s), **options)  # type: ignore[arg-type]
    it.handle(JobSubmitted(made), now)
    it.handle(TaskFinished(Task(name, Stage.ENCODE), 0.0), now)
    return made


def rank_of(it: Scheduler, name: str) -> float:
    job = it.job(name)
    assert job is not None
    return job.rank


def test_more_work_ranks_by_the_total_and_never_better() -> None:
    it = scheduler()
    job = admitted(it, "a", 10.0)
    before = rank_of(it, "a")
    action = amended(it, job, 30.0, now=2.0)
    assert action == AmendJob("a", action.verdict, "n0")
    assert (
        action.verdict.rank
        == rank_of(it, "a")
        == pytest.approx(2.0 + 4.0 * replace(job.seconds, denoise_s=30.0).total_s)
    )
    assert action.verdict.rank > before


def test_less_work_keeps_the_rank_and_frees_the_backlog() -> None:
    it = scheduler()
    job = admitted(it, "a", 30.0)
    before, backlog_s = rank_of(it, "a"), judge(it, 100.0).backlog_s
    assert isinstance(amended(it, job, 10.0, now=1.0), AmendJob)
    assert rank_of(it, "a") == before
    assert judge(it, 100.0).backlog_s == pytest.approx(backlog_s - 20.0)


def test_a_jobs_own_work_does_not_count_against_it() -> None:
    it = scheduler()
    job = admitted(it, "a", 39.0)
    verdict = amended(it, job, 59.0, now=0.0).verdict
    assert (verdict.admitted, verdict.backlog_s) == (True, 0.0)


def test_a_refused_change_leaves_the_job_as_it_was() -> None:
    it = scheduler()
    job = admitted(it, "a", 1.0)
    fill(it, 10.0, 10.0, 9.9)
    before, verdicts = it.job("a"), [judge(it, size) for size in (1.0, 20.0)]
    action = amended(it, job, 20.0, now=0.0)  # 30 s ahead are more than half of 5 × 10 s
    assert isinstance(action, RejectAmendment)
    assert action.verdict.reason == "OVERLOADED"
    assert it.job("a") == before
    assert [judge(it, size) for size in (1.0, 20.0)] == verdicts
    assert amended(it, job, 700.0, now=0.0).verdict.reason == "TOO_LONG"


def test_what_is_done_stays_done() -> None:
    it = scheduler()
    job = admitted(it, "a", 20.0)
    other = unrun(it) - 20.0
    it.handle(TaskProgressed(Task("a", Stage.DENOISE), 0.5), 0.0)
    amended(it, job, 40.0, now=0.0)
    assert unrun(it) - other == pytest.approx(30.0)
    it.handle(TaskProgressed(Task("a", Stage.DENOISE), 0.5), 0.0)
    assert unrun(it) - other == pytest.approx(20.0)


def test_of_several_outputs_those_that_are_done_stay_done() -> None:
    it = scheduler()
    job = admitted(it, "a", 20.0, output_count=2)
    other = unrun(it) - 20.0
    it.handle(LatentsReady("a", 0), 0.0)
    # One output, and half of the other: 5 s are left, of twice as many steps 15.
    it.handle(TaskProgressed(Task("a", Stage.DENOISE), 0.75), 0.0)
    amended(it, job, 40.0, now=0.0)
    assert unrun(it) - other == pytest.approx(15.0)


def test_an_unknown_job_is_no_matter() -> None:
    assert scheduler().handle(JobAmendRequested(request("nobody", 1.0)), 0.0) == []


def unrun(it: Scheduler) -> float:
    job = it.job("a")
    assert job is not None
    return job.remaining_s


def test_verdicts_say_what_they_are() -> None:
    it = scheduler()
    verdict = amended(it, admitted(it, "a", 10.0), 5.0, now=0.0).verdict
    assert isinstance(verdict, Verdict)
    assert (verdict.admitted, verdict.reason, verdict.retry_after_s) == (True, "", 0.0)
