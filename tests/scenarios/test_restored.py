"""Jobs that an earlier router accepted, taken up again."""

import pytest

from services.router.core.actions import FinishJob, RequeueJob, StartTask
from services.router.core.config import SchedulerConfig
from services.router.core.events import (
    JobRestored,
    ResultGone,
)
from services.router.core.job import Stage, Task
from tests.scenarios.story import Story, decode, denoise, encode, start
from tests.scenarios.trio import CONFIG, TRIO
from tests.scenarios.virtual_clock import request


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


def test_jobs_whose_turn_is_far_off_did_not_arrive_later_than_now() -> None:
    """A tenant with much ahead has late ranks. Five minutes on, what it submitted before is no overload."""
    story = Story(SchedulerConfig(), TRIO[0], TRIO[1], TRIO[2])
    for index in range(64):
        event = JobRestored(request(f"a{index}", 2.0), 5_000.0 + index, "interactive", 0, frozenset())
        story.tell(1_000.0, event)
    verdict = story.scheduler.estimate_verdict(request("b", 19.0, tenant="other"), 1_300.0)
    assert verdict.limit_s == pytest.approx(0.5 * 5.0 * 19.0, rel=0.25)
