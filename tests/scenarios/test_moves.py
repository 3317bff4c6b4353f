"""Paused jobs that move, and those that stay: told as short stories."""

from services.router.core.actions import StartTask, StopTask
from services.router.core.config import SchedulerConfig
from services.router.core.events import TaskFinished, Ticked, WorkerSeen
from services.router.core.job import Stage
from tests.scenarios.cast import DECODER, ENCODER, ONE_POOL, denoiser, submit
from tests.scenarios.story import Story, decode, denoise, start
from tests.scenarios.virtual_clock import worker


def test_a_paused_job_moves_to_an_idle_denoiser_if_it_would_wait_longer_than_the_move_costs() -> None:
    config = SchedulerConfig(pools=ONE_POOL.pools, move_cost_s=10.0)
    small = worker("small", Stage.DENOISE, ("n",), slots=2)
    story = Story(config, ENCODER, DECODER, denoiser("big", models=("m", "n"), slots=2), small)
    submit(story, 0.0, "n1", 40.0, "big", model="n")
    submit(story, 0.0, "n2", 30.0, "small", model="n")
    submit(story, 1.0, "m", 25.0, "big", model="m")  # n1 is paused for 25 s
    _, stop, begun = story.tell(4.0, TaskFinished(denoise("n2"), 4.0))
    assert stop == StopTask(denoise("n1"), "big", reason="moved")
    assert begun == StartTask(
        denoise("n1"), "small", 160.0, 2, reason="idle, and it was paused on big", moved_from="big"
    )
    assert story.scheduler.next_tick_s() is None
    story.at(20.0, TaskFinished(denoise("n1"), 4.0), start(decode("n1"), "d"))


def test_where_a_job_has_moved_from_another_starts_at_once() -> None:
    """It waits for a slot of the only denoiser that has its model, and ranks ahead of all that run there."""
    config = SchedulerConfig(pools=ONE_POOL.pools, move_cost_s=10.0)
    story = Story(config, ENCODER, DECODER, denoiser("big", models=("m", "n"), slots=2))
    submit(story, 0.0, "n1", 60.0, "big", model="n")
    submit(story, 0.0, "n2", 30.0, "big", model="n")
    submit(story, 0.0, "m", 5.0, model="m")
    small = worker("small", Stage.DENOISE, ("n",), slots=2)
    stop = StopTask(denoise("n1"), "big", reason="moved")
    story.at(1.0, WorkerSeen(small), stop, start(denoise("n1"), "small"), start(denoise("m"), "big"))


def test_a_paused_job_stays_if_its_turn_comes_sooner_than_a_move_pays() -> None:
    config = SchedulerConfig(pools=ONE_POOL.pools, move_cost_s=10.0)
    small = worker("small", Stage.DENOISE, ("n",), slots=2)
    story = Story(config, ENCODER, DECODER, denoiser("big", models=("m", "n"), slots=2), small)
    submit(story, 0.0, "n1", 40.0, "big", model="n")
    submit(story, 0.0, "n2", 30.0, "small", model="n")
    submit(story, 1.0, "m", 9.0, "big", model="m")
    story.at(4.0, TaskFinished(denoise("n2"), 4.0), start(decode("n2"), "d"))
    assert story.scheduler.next_tick_s() is None
    story.at(50.0, Ticked())
