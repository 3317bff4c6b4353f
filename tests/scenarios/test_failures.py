"""What goes wrong, and what is made of it."""

import pytest

from services.router.core.actions import FinishJob, RequeueJob, StartTask, StopTask
from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.events import (
    JobCancelRequested,
    JobRestored,
    JobSubmitted,
    LatentsReady,
    ResultGone,
    TaskFailed,
    TaskFinished,
    TaskProgressed,
    TaskSaved,
    Ticked,
    WorkerLost,
    WorkerSeen,
)
from services.router.core.job import Stage, Task, Tries
from tests.scenarios.story import Story, decode, denoise, encode, start
from tests.scenarios.virtual_clock import request, worker

CONFIG = SchedulerConfig(pools=(PoolConfig(name="all"),))
TRIO = (worker("e", Stage.ENCODE, slots=9), worker("n", Stage.DENOISE), worker("d", Stage.DECODE, slots=9))


def denoising(*job_ids: str, outputs: int = 1, config: SchedulerConfig = CONFIG) -> Story:
    """The jobs are encoded; the first is being denoised, or as many as there is room for."""
    story = Story(config, *TRIO)
    for job_id in job_ids:
        story.tell(0.0, JobSubmitted(request(job_id, 4.0, decode_s=1.0, outputs=outputs)))
        story.tell(0.0, TaskFinished(encode(job_id), 0.0))
    assert story.scheduler.job(job_ids[0]).running == (denoise(job_ids[0]),)  # type: ignore[union-attr]
    return story


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
    assert story.scheduler.job("a").unrun_s == 5.0  # type: ignore[union-attr]
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


def test_conditioning_that_is_gone_is_made_again_and_no_attempt_is_spent() -> None:
    story = denoising("a")
    for attempt in range(1, CONFIG.max_reruns + 1):
        again = RequeueJob("a", attempt, "CONDITIONING_GONE", Stage.ENCODE)
        story.at(1.0, ResultGone(denoise("a"), Stage.ENCODE), again, start(encode("a"), "e"))
        story.at(2.0, TaskFinished(encode("a"), 0.0), start(denoise("a"), "n"))
    (finish,) = story.tell(3.0, ResultGone(denoise("a"), Stage.ENCODE))
    assert isinstance(finish, FinishJob)
    assert finish.reason == "CONDITIONING_GONE"


def test_latents_that_are_gone_are_made_again_for_that_output_only() -> None:
    story = denoising("a", outputs=3)
    story.at(1.0, LatentsReady("a", 0), start(decode("a", 0), "d"))
    story.at(2.0, TaskFinished(decode("a", 0), 1.0))
    story.at(3.0, TaskFinished(denoise("a"), 4.0), start(decode("a", 1), "d"), start(decode("a", 2), "d"))
    requeue, again = story.tell(4.0, ResultGone(decode("a", 2), Stage.DENOISE))
    assert requeue == RequeueJob("a", 1, "LATENTS_GONE")
    assert again == StartTask(denoise("a"), "n", 25.0, 2, finished_outputs=frozenset({0, 1}), reason="idle")
    assert story.scheduler.job("a").unrun_s == pytest.approx(4.0 / 3 + 2.0 / 3)  # type: ignore[union-attr]
    story.at(5.0, TaskFinished(decode("a", 1), 1.0))
    story.at(6.0, TaskFinished(denoise("a"), 4.0), start(decode("a", 2), "d"))
    story.at(7.0, TaskFinished(decode("a", 2), 1.0), FinishJob("a", "succeeded"))


def test_conditioning_that_a_decode_misses_is_all_that_is_made_again() -> None:
    """Once for all decodes that miss it; those that have it, go on."""
    story = denoising("a", outputs=4)
    decodes = [decode("a", index) for index in range(4)]
    story.at(3.0, TaskFinished(denoise("a"), 4.0), *(start(each, "d") for each in decodes))
    missed = RequeueJob("a", 1, "CONDITIONING_GONE", Stage.DECODE)
    story.at(4.0, ResultGone(decodes[0], Stage.ENCODE), missed, start(encode("a"), "e"))
    story.at(4.0, ResultGone(decodes[1], Stage.ENCODE), missed)
    story.at(4.0, TaskFinished(decodes[2], 1.0))
    story.at(4.0, TaskFailed(decodes[3], "DRAINING", "", True, False), RequeueJob("a", 1, "DRAINING", Stage.DECODE))
    assert story.scheduler.job("a").denoise_s == 0.0  # type: ignore[union-attr]
    waiting = [decodes[0], decodes[1], decodes[3]]
    story.at(5.0, TaskFinished(encode("a"), 0.0), *(start(each, "d") for each in waiting))
    for each in waiting[:2]:
        story.at(6.0, TaskFinished(each, 1.0))
    story.at(6.0, TaskFinished(decodes[3], 1.0), FinishJob("a", "succeeded"))


def test_a_denoise_goes_on_while_the_conditioning_that_it_has_is_made_again() -> None:
    story = denoising("a", "b", outputs=2)
    story.at(1.0, LatentsReady("a", 0), start(decode("a", 0), "d"))
    missed = RequeueJob("a", 1, "CONDITIONING_GONE", Stage.DECODE)
    story.at(1.0, ResultGone(decode("a", 0), Stage.ENCODE), missed, start(encode("a"), "e"))
    # What becomes ready meanwhile waits for it, and what falls back too.
    story.at(2.0, LatentsReady("a", 1))
    story.at(2.0, TaskFinished(denoise("a"), 4.0), start(denoise("b"), "n"))
    story.at(3.0, TaskFinished(encode("a"), 0.0), start(decode("a", 0), "d"), start(decode("a", 1), "d"))


def test_what_falls_back_while_the_job_is_encoded_again_waits_for_it() -> None:
    story = denoising("a", outputs=2)
    story.at(1.0, LatentsReady("a", 0), start(decode("a", 0), "d"))
    missed = RequeueJob("a", 1, "CONDITIONING_GONE", Stage.DECODE)
    story.at(1.0, ResultGone(decode("a", 0), Stage.ENCODE), missed, start(encode("a"), "e"))
    story.at(2.0, WorkerLost("n"), RequeueJob("a", 1, "WORKER_LOST"))
    story.at(2.0, WorkerSeen(TRIO[1]))
    story.at(3.0, TaskFinished(encode("a"), 0.0), start(decode("a", 0), "d"), start(denoise("a"), "n"))


def test_who_is_encoded_again_for_a_decode_waits_for_no_turn_of_a_denoiser() -> None:
    story = denoising("a", "b", config=SchedulerConfig(pools=CONFIG.pools, encode_ahead_jobs=1))
    story.at(1.0, TaskFinished(denoise("a"), 4.0), start(decode("a"), "d"), start(denoise("b"), "n"))
    story.at(1.0, JobSubmitted(request("c", 1.0)), start(encode("c"), "e"))
    story.at(1.0, TaskFinished(encode("c"), 0.0))  # it ranks ahead, and waits for the denoiser
    missed = RequeueJob("a", 1, "CONDITIONING_GONE", Stage.DECODE)
    story.at(2.0, ResultGone(decode("a"), Stage.ENCODE), missed, start(encode("a"), "e"))


def test_latents_that_go_while_others_are_made_wait_for_the_next_run() -> None:
    story = denoising("a", outputs=2)
    story.at(1.0, LatentsReady("a", 0), start(decode("a", 0), "d"))
    story.at(2.0, ResultGone(decode("a", 0), Stage.DENOISE))
    done, again = TaskFinished(denoise("a"), 4.0), RequeueJob("a", 1, "LATENTS_GONE")
    story.at(3.0, done, again, start(decode("a", 1), "d"), start(denoise("a"), "n"))


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


@pytest.mark.parametrize(
    ("finished", "latents", "expected"),
    [
        pytest.param([], [], [start(encode("a"), "e")], id="nothing"),
        pytest.param([encode("a")], [], [start(denoise("a"), "n")], id="encoded"),
        pytest.param([encode("a")], [1], [start(decode("a", 1), "d"), start(denoise("a"), "n")], id="one output"),
        pytest.param([], [1], [start(encode("a"), "e")], id="one output without conditioning"),
        pytest.param([denoise("a")], [], [start(decode("a", 0), "d"), start(decode("a", 1), "d")], id="denoised"),
        pytest.param([denoise("a"), decode("a", 0)], [], [start(decode("a", 1), "d")], id="one decoded"),
        pytest.param([decode("a", 0)], [], [start(encode("a"), "e")], id="pixels without conditioning"),
        pytest.param([decode("a", 0), decode("a", 1)], [], [FinishJob("a", "succeeded")], id="all"),
    ],
)
def test_a_restored_job_goes_on_from_its_results(
    finished: list[Task], latents: list[int], expected: list[FinishJob | tuple[Task, str]]
) -> None:
    story = Story(CONFIG, *TRIO)
    event = JobRestored(request("a", 4.0, outputs=2), 17.0, "all", 2, frozenset(finished), frozenset(latents))
    story.at(1.0, event, *expected)
    if not isinstance(expected[0], FinishJob):
        story.at(1.0, event)  # told twice, nothing starts twice
        view = story.scheduler.job("a")
        assert view is not None
        assert (view.rank, view.pool) == (17.0, "all")


def test_a_restored_job_may_lack_what_nothing_has_asked_for() -> None:
    """Where only decodes are left, conditioning is taken to be there until a task misses it."""
    story = Story(CONFIG, *TRIO)
    known = JobRestored(request("a", 4.0), 17.0, "all", 1, frozenset({denoise("a")}), frozenset({0}))
    story.at(1.0, known, start(decode("a"), "d"))
    again = RequeueJob("a", 1, "LATENTS_GONE")
    story.at(2.0, ResultGone(decode("a"), Stage.DENOISE), again, start(denoise("a"), "n"))
    encoded = RequeueJob("a", 2, "CONDITIONING_GONE", Stage.ENCODE)
    story.at(3.0, ResultGone(denoise("a"), Stage.ENCODE), encoded, start(encode("a"), "e"))


def test_a_restored_job_keeps_its_count_of_attempts_and_a_pool_that_is_no_more_is_chosen_anew() -> None:
    story = Story(CONFIG, *TRIO)
    event = JobRestored(request("a", 4.0), 17.0, "of old", 2, frozenset({encode("a")}))
    (begun,) = story.tell(1.0, event)
    assert begun == StartTask(denoise("a"), "n", 17.0, attempt=3, reason="idle")
    assert story.scheduler.job("a").pool == "all"  # type: ignore[union-attr]
