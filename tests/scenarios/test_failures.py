"""Tries that fail, workers that die, jobs that are cancelled, and what is made of it."""

import pytest

from services.router.core.actions import FinishJob, RequeueJob, StopTask
from services.router.core.config import SchedulerConfig
from services.router.core.events import (
    JobCancelRequested,
    JobRestored,
    JobSubmitted,
    LatentsReady,
    TaskFailed,
    TaskFinished,
    TaskProgressed,
    TaskSaved,
    Ticked,
    WorkerLost,
    WorkerReturned,
    WorkerSeen,
)
from services.router.core.job import Stage, Task, Tries
from tests.scenarios.story import Story, decode, denoise, encode, start
from tests.scenarios.trio import CONFIG, TRIO, denoising
from tests.scenarios.virtual_clock import request, worker


def broken(task: Task, *, retryable: bool = True, counts: bool = True) -> TaskFailed:
    return TaskFailed(task, "OUT_OF_MEMORY", "CUDA out of memory", retryable, counts)


def test_a_task_is_tried_three_times_with_growing_pauses() -> None:
    story = denoising("a")
    story.at(1.0, broken(denoise("a")), RequeueJob("a", 1, "OUT_OF_MEMORY"))
    assert story.scheduler.next_tick_s() == 1.5
    story.at(1.4, Ticked())
    story.at(1.5, Ticked(), start(denoise("a"), "n"))
    story.at(2.0, broken(denoise("a")), RequeueJob("a", 2, "OUT_OF_MEMORY"))
    story.at(3.0, Ticked(), start(denoise("a"), "n"))
    (finish,) = story.tell(4.0, broken(denoise("a")))
    assert isinstance(finish, FinishJob)
    assert (finish.outcome, finish.reason) == ("failed", "TOO_MANY_ATTEMPTS")
    assert "OUT_OF_MEMORY CUDA out of memory" in finish.blame


def test_any_event_releases_a_pause_that_is_over_and_others_run_meanwhile() -> None:
    story = denoising("a", "b")
    story.at(1.0, broken(denoise("a")), RequeueJob("a", 1, "OUT_OF_MEMORY"), start(denoise("b"), "n"))
    done = TaskFinished(denoise("b"), 4.0)
    story.at(5.0, done, start(decode("b"), "d"), start(denoise("a"), "n"))


def test_a_failure_that_no_retry_helps_ends_the_job_and_stops_its_other_tasks() -> None:
    story = denoising("a", outputs=2)
    story.at(1.0, LatentsReady("a", 0), start(decode("a", 0), "d"))
    failure = broken(decode("a", 0), retryable=False)
    finish = FinishJob("a", "failed", "OUT_OF_MEMORY", "CUDA out of memory")
    story.at(2.0, failure, StopTask(denoise("a"), "n"), finish)


def test_a_worker_that_hands_back_costs_no_attempt_and_no_pause_at_first() -> None:
    story = denoising("a")
    back = TaskFailed(denoise("a"), "DRAINING", "", retryable=True, counts=False)
    story.at(1.0, back, RequeueJob("a", 1, "DRAINING"), start(denoise("a"), "n"))
    story.at(2.0, back, RequeueJob("a", 2, "DRAINING"))
    story.at(2.5, Ticked(), start(denoise("a"), "n"))
    for turn in range(3, 60):
        actions = story.tell(100.0 * turn, back)
        if isinstance(actions[-1], FinishJob):
            break
        story.tell(100.0 * turn + CONFIG.max_backoff_s, Ticked())
    assert turn == CONFIG.max_setbacks + 1
    assert actions[-1].reason == "TOO_MANY_ATTEMPTS"  # type: ignore[union-attr]


def test_what_finds_a_store_full_is_tried_until_there_is_room() -> None:
    story = denoising("a")
    full = TaskFailed(denoise("a"), "STORE_FULL", "", retryable=True, counts=False, awaits_room=True)
    for turn in range(1, 2 * CONFIG.max_setbacks):
        story.at(100.0 * turn, full, RequeueJob("a", turn, "STORE_FULL"))
        story.at(100.0 * turn + CONFIG.max_backoff_s, Ticked(), start(denoise("a"), "n"))
    # Nothing of that is held against it.
    back = TaskFailed(denoise("a"), "DRAINING", "", retryable=True, counts=False)
    story.at(99_000.0, back, RequeueJob("a", turn + 1, "DRAINING"), start(denoise("a"), "n"))
    assert story.scheduler.tries("a")[0].setbacks == 1


def test_what_a_lost_worker_ran_runs_elsewhere() -> None:
    story = denoising("a")
    story.at(1.0, WorkerSeen(worker("n2", Stage.DENOISE)))
    story.at(1.0, TaskProgressed(denoise("a"), 0.75))
    story.at(2.0, WorkerLost("n"), RequeueJob("a", 1, "WORKER_LOST"), start(denoise("a"), "n2"))
    assert story.scheduler.job("a").remaining_s == 5.0  # type: ignore[union-attr]
    story.at(3.0, WorkerLost("n"))


def test_three_deaths_under_a_job_end_it() -> None:
    story = denoising("a")
    for death in (1, 2):
        story.at(float(death), WorkerLost("n"), RequeueJob("a", death, "WORKER_LOST"))
        story.at(float(death), WorkerSeen(TRIO[1]), start(denoise("a"), "n"))
    (finish,) = story.tell(3.0, WorkerLost("n"))
    assert isinstance(finish, FinishJob)
    assert (finish.outcome, finish.reason) == ("failed", "TOO_MANY_ATTEMPTS")
    assert "worker n was lost" in finish.blame


def test_a_death_that_was_none_is_held_against_nobody() -> None:
    story = denoising("a")
    for death in (1, 2):
        story.at(float(death), WorkerLost("n", death=death), RequeueJob("a", death, "WORKER_LOST"))
        story.at(float(death), WorkerSeen(TRIO[1]), start(denoise("a"), "n"))
    assert story.scheduler.tries("a") == (Tries(denoise("a"), 2, 0, suspect=True),)
    story.at(3.0, WorkerReturned(frozenset({2, 7})))
    assert story.scheduler.tries("a") == (Tries(denoise("a"), 1, 0, suspect=True),)
    story.at(4.0, WorkerReturned(frozenset({1, 2})))
    assert story.scheduler.tries("a") == ()


def test_a_suspect_of_a_death_that_was_none_has_company_again() -> None:
    roomy = worker("n", Stage.DENOISE, slots=2)
    story = Story(CONFIG, TRIO[0], roomy, TRIO[2])
    for job_id, seconds in (("b", 1.0), ("a", 10.0)):
        story.tell(0.0, JobSubmitted(request(job_id, seconds)))
    story.tell(0.0, TaskFinished(encode("a"), 0.0))
    story.at(1.0, WorkerLost("n", death=1), RequeueJob("a", 1, "WORKER_LOST"))
    story.at(1.0, WorkerSeen(roomy), start(denoise("a"), "n"))
    story.at(1.5, TaskFinished(encode("b"), 0.0))
    story.at(2.0, WorkerReturned(frozenset({1})), start(denoise("b"), "n"))


@pytest.mark.parametrize("returns", [True, False])
def test_a_job_without_an_attempt_left_waits_whether_its_worker_comes_back(returns: bool) -> None:
    config = SchedulerConfig(pools=CONFIG.pools, max_attempts=1)
    story = Story(config, *TRIO)
    story.tell(0.0, JobSubmitted(request("a", 4.0)))
    story.tell(0.0, TaskFinished(encode("a"), 0.0))
    story.at(1.0, WorkerLost("n", death=1), RequeueJob("a", 1, "WORKER_LOST"))
    story.at(2.0, WorkerSeen(TRIO[1]))
    assert story.scheduler.next_tick_s() == 11.0
    if returns:
        story.at(3.0, WorkerReturned(frozenset({1})), start(denoise("a"), "n"))
        story.at(11.0, Ticked())
    else:
        (finish,) = story.tell(11.0, Ticked())
        assert isinstance(finish, FinishJob)
        assert (finish.outcome, finish.reason) == ("failed", "TOO_MANY_ATTEMPTS")
        assert "worker n was lost" in finish.blame


def test_a_job_without_an_attempt_left_ends_though_another_death_was_none() -> None:
    """The first death is charged to the job that had the device, the second one to "a": it stays so."""
    config = SchedulerConfig(pools=CONFIG.pools, max_attempts=1)
    story = Story(config, TRIO[0], worker("n", Stage.DENOISE, slots=2), TRIO[2])
    for job_id, seconds in (("a", 10.0), ("b", 1.0)):
        story.tell(0.0, JobSubmitted(request(job_id, seconds)))
        story.tell(0.0, TaskFinished(encode(job_id), 0.0))
    story.tell(1.0, WorkerLost("n", death=1))
    story.at(2.0, WorkerSeen(TRIO[1]), start(denoise("a"), "n"))
    story.at(3.0, WorkerLost("n", death=2), RequeueJob("a", 2, "WORKER_LOST"))
    story.at(4.0, JobCancelRequested("b"), FinishJob("b", "cancelled"))
    story.at(4.0, WorkerReturned(frozenset({1})))
    story.at(5.0, WorkerSeen(TRIO[1]))
    (finish,) = story.tell(13.0, Ticked())
    assert isinstance(finish, FinishJob)
    assert finish.reason == "TOO_MANY_ATTEMPTS"


def test_a_pause_that_ends_when_another_job_reports_progress_is_over() -> None:
    roomy = worker("e", Stage.ENCODE, slots=2)
    story = Story(CONFIG, roomy, *TRIO[1:])
    for job_id in ("a", "b"):
        story.at(0.0, JobSubmitted(request(job_id, 4.0)), start(encode(job_id), "e"))
    story.at(0.0, broken(encode("b")), RequeueJob("b", 0, "OUT_OF_MEMORY", Stage.ENCODE))
    due_s = story.scheduler.next_tick_s()
    assert due_s is not None
    story.at(due_s, TaskProgressed(encode("a"), 0.5), start(encode("b"), "e"))


def test_deaths_count_on_in_the_next_scheduler() -> None:
    """So do setbacks, and a suspect runs alone there too, until it gets further than it ever was."""
    story = denoising("a")
    story.tell(1.0, TaskSaved(denoise("a"), 0, 3))
    for death in (1, 2):
        story.at(float(death), WorkerLost("n"), RequeueJob("a", death, "WORKER_LOST"))
        story.at(float(death), WorkerSeen(TRIO[1]), start(denoise("a"), "n"))
    tries = story.scheduler.tries("a")
    assert tries == (Tries(denoise("a"), 2, 0, suspect=True),)
    known = JobRestored(request("a", 4.0), 17.0, "all", 3, frozenset({encode("a")}), tries=tries, saved=(0, 3))
    for further in (False, True):
        story = Story(CONFIG, *TRIO)
        story.at(3.0, known, start(denoise("a"), "n"))
        story.at(3.0, TaskSaved(denoise("a"), 0, 3 + further))
        assert story.scheduler.tries("a") == (() if further else tries)
        (action,) = story.tell(4.0, WorkerLost("n"))
        assert isinstance(action, RequeueJob if further else FinishJob)


def test_a_death_before_the_task_had_reached_the_worker_is_not_the_jobs() -> None:
    config = SchedulerConfig(pools=CONFIG.pools, max_attempts=1)
    story = Story(config, TRIO[0], worker("n", Stage.DENOISE, slots=2), TRIO[2])
    for job_id in ("a", "b"):
        story.tell(0.0, JobSubmitted(request(job_id, 4.0)))
        story.tell(0.0, TaskFinished(encode(job_id), 0.0))
    [running] = [view.running for view in story.scheduler.workers() if view.worker_id == "n"]
    first, *others = running
    unbegun = WorkerLost("n", frozenset({first}))
    actions = story.tell(1.0, unbegun)
    assert RequeueJob(first.job_id, 1, "WORKER_LOST") in actions
    # Who was behind it had the device.
    assert [each.job_id for each in actions if isinstance(each, FinishJob)] == [task.job_id for task in others]


def test_a_job_that_gets_further_survives_any_number_of_deaths() -> None:
    story = denoising("a")
    for death in range(1, 20):
        story.at(float(death), TaskSaved(denoise("a"), 0, death))
        story.at(float(death), WorkerLost("n"), RequeueJob("a", death, "WORKER_LOST"))
        story.at(float(death), WorkerSeen(TRIO[1]), start(denoise("a"), "n"))


def test_a_job_that_gets_no_further_than_before_dies_of_its_workers_deaths() -> None:
    story = denoising("a")
    for death in (1, 2):
        story.at(float(death), TaskSaved(denoise("a"), 0, 3))
        story.at(float(death), WorkerLost("n"), RequeueJob("a", death, "WORKER_LOST"))
        story.at(float(death), WorkerSeen(TRIO[1]), start(denoise("a"), "n"))
    story.at(3.0, TaskSaved(denoise("a"), 0, 2))
    (finish,) = story.tell(3.0, WorkerLost("n"))
    assert isinstance(finish, FinishJob)
    assert finish.reason == "TOO_MANY_ATTEMPTS"


def test_a_suspect_that_gets_further_has_company_again() -> None:
    roomy = worker("n", Stage.DENOISE, slots=2)
    story = Story(CONFIG, TRIO[0], roomy, TRIO[2])
    for job_id, seconds in (("b", 1.0), ("a", 10.0)):
        story.tell(0.0, JobSubmitted(request(job_id, seconds)))
    story.tell(0.0, TaskFinished(encode("a"), 0.0))
    story.at(1.0, WorkerLost("n"), RequeueJob("a", 1, "WORKER_LOST"))
    story.at(1.0, WorkerSeen(roomy), start(denoise("a"), "n"))
    story.at(1.5, TaskFinished(encode("b"), 0.0))
    story.at(2.0, TaskSaved(denoise("a"), 0, 1), start(denoise("b"), "n"))


def test_a_death_is_held_against_the_job_that_had_the_device() -> None:
    """The other lay paused: however often its worker dies under it so, it goes on."""
    config = SchedulerConfig(pools=CONFIG.pools, max_attempts=1)
    story = Story(config, TRIO[0], worker("n", Stage.DENOISE, slots=2), TRIO[2])
    for job_id, denoise_s in (("long", 40.0), ("short", 1.0)):
        story.tell(0.0, JobSubmitted(request(job_id, denoise_s, decode_s=1.0)))
        story.tell(0.0, TaskFinished(encode(job_id), 0.0))
    finish, requeue = story.tell(1.0, WorkerLost("n"))
    assert {finish, requeue} >= {RequeueJob("long", 1, "WORKER_LOST")}
    assert [each.job_id for each in (finish, requeue) if isinstance(each, FinishJob)] == ["short"]


def test_a_job_that_kills_its_worker_takes_no_other_with_it() -> None:
    """After the first death, each suspect runs alone: the innocent are done, the guilty has the worker to itself."""
    story = Story(CONFIG, *TRIO[1:], worker("e", Stage.ENCODE, slots=9))
    jobs = ["bad", "good1", "good2"]
    for job_id in jobs:
        story.tell(0.0, JobSubmitted(request(job_id, 4.0)))
    outcomes: dict[str, str] = {}
    for _ in range(12):
        running = [task.job_id for view in story.scheduler.workers() if view.worker_id == "e" for task in view.running]
        if "bad" in running:
            actions = story.tell(1.0, WorkerLost("e")) + story.tell(1.0, WorkerSeen(worker("e", Stage.ENCODE, slots=9)))
        elif running:
            actions = story.tell(1.0, TaskFinished(encode(running[0]), 0.0))
        outcomes |= {action.job_id: action.outcome for action in actions if isinstance(action, FinishJob)}
    assert outcomes == {"bad": "failed"}
    assert all(story.scheduler.job(job_id) for job_id in jobs[1:])


def test_a_suspect_is_not_kept_waiting_by_jobs_that_rank_behind() -> None:
    """Both slots of the decoder are never free at once unless it is left alone for the suspect."""
    decoder = worker("d", Stage.DECODE, slots=2)
    story = Story(CONFIG, *TRIO[:2], decoder)
    for index in range(6):
        job_id = f"j{index}"
        story.tell(0.0, JobSubmitted(request(job_id, 4.0)))
        story.tell(0.0, TaskFinished(encode(job_id), 0.0))
    for index in range(2):
        story.at(1.0, TaskFinished(denoise(f"j{index}"), 1.0), *run_on(index))
    requeued = [RequeueJob(f"j{index}", 1, "WORKER_LOST", Stage.DECODE) for index in range(2)]
    story.at(2.0, WorkerLost("d"), *requeued)
    story.at(2.0, WorkerSeen(decoder), start(decode("j0"), "d"))
    story.at(3.0, TaskFinished(denoise("j2"), 1.0), start(denoise("j3"), "n"))  # its decode has to wait
    story.at(4.0, TaskFinished(decode("j0"), 1.0), FinishJob("j0", "succeeded"), start(decode("j1"), "d"))
    story.at(5.0, TaskFinished(decode("j1"), 1.0), FinishJob("j1", "succeeded"), start(decode("j2"), "d"))
    story.at(6.0, TaskFinished(denoise("j3"), 1.0), start(decode("j3"), "d"), start(denoise("j4"), "n"))


def run_on(index: int) -> tuple[tuple[Task, str], ...]:
    return (start(decode(f"j{index}"), "d"), start(denoise(f"j{index + 1}"), "n"))


def test_a_denoise_that_breaks_after_its_last_latents_is_done() -> None:
    story = denoising("a")
    story.at(1.0, LatentsReady("a", 0), start(decode("a", 0), "d"))
    story.at(2.0, TaskFinished(decode("a", 0), 1.0))  # its call may be about to report
    story.at(3.0, WorkerLost("n"), FinishJob("a", "succeeded"))


def test_cancel_stops_the_job_wherever_it_is_and_no_other() -> None:
    story = denoising("a", "b", outputs=2)
    story.at(0.0, JobSubmitted(request("c", 4.0)), start(encode("c"), "e"))
    story.at(1.0, LatentsReady("a", 0), start(decode("a", 0), "d"))
    story.at(1.0, JobCancelRequested("b"), FinishJob("b", "cancelled"))
    story.at(1.0, JobCancelRequested("c"), StopTask(encode("c"), "e"), FinishJob("c", "cancelled"))
    stops = StopTask(denoise("a"), "n"), StopTask(decode("a", 0), "d")
    story.at(2.0, JobCancelRequested("a"), *stops, FinishJob("a", "cancelled"))
    for late in (LatentsReady("a", 1), TaskFinished(denoise("a"), 1.0), JobCancelRequested("a")):
        story.at(3.0, late)


def test_a_job_in_a_pause_can_be_cancelled() -> None:
    story = denoising("a")
    story.tell(1.0, broken(denoise("a")))
    story.at(1.1, JobCancelRequested("a"), FinishJob("a", "cancelled"))
    story.at(9.0, Ticked())


def test_an_id_that_is_in_use_is_refused_loudly() -> None:
    story = denoising("a")
    with pytest.raises(ValueError, match="job a is known"):
        story.tell(1.0, JobSubmitted(request("a", 1.0)))
