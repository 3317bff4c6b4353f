"""Results that have left the exchange before they were used: what made them runs again."""

import pytest

from services.router.core.actions import FinishJob, RequeueJob, StartTask
from services.router.core.config import SchedulerConfig
from services.router.core.events import (
    JobSubmitted,
    LatentsReady,
    ResultGone,
    TaskFailed,
    TaskFinished,
    WorkerLost,
    WorkerSeen,
)
from services.router.core.job import Stage
from tests.scenarios.story import decode, denoise, encode, start
from tests.scenarios.trio import CONFIG, TRIO, denoising
from tests.scenarios.virtual_clock import request


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
    assert again == StartTask(denoise("a"), "n", 20.0, 2, finished_outputs=frozenset({0, 1}), reason="idle")
    assert story.scheduler.job("a").remaining_s == pytest.approx(4.0 / 3 + 2.0 / 3)  # type: ignore[union-attr]
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
