"""Pools that lend their denoisers, and guests that are sent away: told as short stories."""

from services.router.core.actions import FinishJob, RequeueJob, StopTask
from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.events import JobCancelRequested, JobSubmitted, LatentsReady, TaskFinished
from tests.scenarios.cast import DECODER, ENCODER, TWO_POOLS, denoiser, submit
from tests.scenarios.story import Story, decode, denoise, encode, start
from tests.scenarios.virtual_clock import request


def test_idle_denoisers_are_lent_where_their_own_pool_can_still_get_in() -> None:
    story = Story(TWO_POOLS, ENCODER, DECODER, denoiser("n1", slots=2), denoiser("n2", slots=2))
    submit(story, 0.0, "long", 60.0, "n2")
    submit(story, 0.0, "long2", 60.0, "n1")  # n1 belongs to the short ones
    submit(story, 1.0, "short", 1.0, "n1")  # and is theirs at once


def test_a_denoiser_with_one_slot_is_not_lent_to_long_jobs_but_to_short_ones() -> None:
    story = Story(TWO_POOLS, ENCODER, DECODER, denoiser("n1"), denoiser("n2"))
    submit(story, 0.0, "long", 60.0, "n2")
    submit(story, 0.0, "long2", 60.0)
    submit(story, 1.0, "short", 1.0, "n1")
    story.at(2.0, TaskFinished(denoise("long"), 1.0), start(decode("long"), "d"), start(denoise("long2"), "n2"))
    story.at(3.0, JobCancelRequested("long2"), StopTask(denoise("long2"), "n2"), FinishJob("long2", "cancelled"))
    submit(story, 4.0, "short2", 1.0, "n2")


def test_a_pool_that_borrows_nothing_waits_for_its_own() -> None:
    pools = (PoolConfig(name="short", max_estimate_s=20.0), PoolConfig(name="long"))
    story = Story(SchedulerConfig(pools=pools), ENCODER, DECODER, denoiser("n1", slots=2), denoiser("n2", slots=2))
    submit(story, 0.0, "a", 4.0, "n1")
    submit(story, 0.0, "b", 4.0)


def test_a_resident_model_comes_first_among_those_that_are_lent_and_those_that_are_overtaken() -> None:
    denoisers = denoiser("n1", slots=2, resident=()), denoiser("n2", slots=2), denoiser("n3", slots=2)
    story = Story(TWO_POOLS, ENCODER, DECODER, *denoisers)
    assert [view.pool for view in story.scheduler.workers() if view.pool] == ["short", "long", "short"]
    submit(story, 0.0, "long1", 60.0, "n2")
    submit(story, 0.0, "long2", 60.0, "n3")
    submit(story, 0.0, "long3", 60.0, "n1")
    submit(story, 1.0, "quick", 2.0, "n3")


LENDING = SchedulerConfig(
    pools=(
        PoolConfig(name="own", models=("n",), max_backlog_s=1e6, max_job_s=1e6),
        PoolConfig(name="guest", max_backlog_s=1e6, max_job_s=1e6, borrow="preemptible"),
    )
)


def lending(home_s: float, slots: int = 8) -> Story:
    """n1 is the own pool's, and is lent; n2 is the guests', and has a job of theirs."""
    crew = [denoiser(worker_id, models=("m", "n"), slots=slots) for worker_id in ("n1", "n2")]
    story = Story(LENDING, ENCODER, DECODER, *crew)
    submit(story, 0.0, "home", home_s, "n2", tenant="home")
    return story


def test_on_a_lent_denoiser_a_short_guest_of_better_rank_goes_first() -> None:
    story = lending(home_s=5.0)
    submit(story, 0.0, "guest", 5.0, "n1")
    submit(story, 1.0, "own", 500.0, "n1", model="n", tenant="own")
    places = {action.task.job_id: (action.rank, action.reason, action.lent) for action in story.started}
    assert places["guest"] == (20.0, "idle, lent by pool own", True)
    assert places["own"] == (2001.0, "after guest, which is a guest", False)


def test_a_guest_that_would_hold_up_a_job_of_the_denoisers_own_pool_is_sent_away() -> None:
    story = lending(home_s=400.0)
    submit(story, 0.0, "guest", 50.0, "n1")
    story.at(240.0, JobSubmitted(request("own", 5.0, model="n", tenant="own")), start(encode("own"), "e"))
    story.at(
        240.0,
        TaskFinished(encode("own"), 0.0),
        StopTask(denoise("guest"), "n1", reason="asked back"),
        RequeueJob("guest", 1, "ASKED_BACK"),
        start(denoise("own"), "n1"),  # though it ranks behind
        start(denoise("guest"), "n2"),  # at home the guest is the first
    )


def test_a_guest_all_of_whose_latents_are_there_ends_where_it_is() -> None:
    story = lending(home_s=400.0)
    submit(story, 0.0, "guest", 50.0, "n1")
    story.at(239.0, LatentsReady("guest", 0), start(decode("guest"), "d"))
    story.at(240.0, JobSubmitted(request("own", 5.0, model="n", tenant="own")), start(encode("own"), "e"))
    story.at(240.0, TaskFinished(encode("own"), 0.0), start(denoise("own"), "n1"))
    assert story.started[-1].reason == "after guest, which is a guest"


def test_guests_of_all_kinds_hold_up_a_job_for_half_of_its_own_time_and_no_longer() -> None:
    story = lending(home_s=0.5)
    submit(story, 0.0, "own", 20.0, "n1", model="n", tenant="own")
    submit(story, 0.0, "guest1", 4.0, "n1", tenant="a")
    submit(story, 0.0, "guest2", 3.9, "n1", tenant="b")
    submit(story, 0.0, "guest3", 3.8, tenant="c")  # ten seconds less 7.9 are left
    submit(story, 0.0, "guest4", 2.0, "n1", tenant="d")
    story.tell(3.9, TaskFinished(denoise("guest2"), 3.9))  # what was waited for is not given back
    assert story.started[-1].task == decode("guest2")


def test_a_borrower_is_kept_out_where_it_ranks_behind_or_may_take_idle_denoisers_only() -> None:
    story = lending(home_s=0.5)
    submit(story, 0.0, "own", 20.0, "n1", model="n")
    submit(story, 90.0, "guest", 3.0)
    story = Story(TWO_POOLS, ENCODER, DECODER, denoiser("n1", slots=3), denoiser("n2", slots=3))
    submit(story, 0.0, "short", 1.0, "n1")
    submit(story, 0.0, "long", 60.0, "n2")
    submit(story, 0.0, "short2", 2.0)


def test_a_long_job_does_not_pause_a_short_one_that_keeps_what_it_borrowed() -> None:
    story = Story(TWO_POOLS, ENCODER, DECODER, denoiser("n1", slots=2), denoiser("n2", slots=2))
    submit(story, 0.0, "short", 5.0, "n1")
    submit(story, 0.0, "short2", 5.0, "n2")  # the long ones' own
    submit(story, 1.0, "long", 60.0)
