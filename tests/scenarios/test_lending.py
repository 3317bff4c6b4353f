"""Pools that lend their denoisers, and take them back: told as short stories."""

from dataclasses import replace
from math import inf

from services.router.core.actions import RequeueJob, StopTask
from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.events import JobSubmitted, LatentsReady, TaskFinished
from tests.scenarios.cast import DECODER, ENCODER, TWO_POOLS, denoiser, submit
from tests.scenarios.story import Story, decode, denoise, encode, start
from tests.scenarios.virtual_clock import request


def test_idle_denoisers_are_lent_where_their_own_pool_can_still_get_in() -> None:
    story = Story(TWO_POOLS, ENCODER, DECODER, denoiser("n1", slots=2), denoiser("n2", slots=2))
    submit(story, 0.0, "long", 60.0, "n2")
    submit(story, 0.0, "long2", 60.0, "n1")  # n1 belongs to the short ones
    submit(story, 1.0, "short", 1.0, "n1")  # and is theirs at once


def test_a_pool_that_borrows_nothing_waits_for_its_own() -> None:
    pools = (PoolConfig(name="short", max_estimate_s=20.0, max_backlog_s=inf), PoolConfig(name="long"))
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


RESERVED = SchedulerConfig(
    pools=(
        PoolConfig(name="own", models=("n",), max_backlog_s=inf),
        PoolConfig(name="guest", max_backlog_s=inf, borrow="idle"),
    )
)


def reserved(home_s: float, slots: int = 8) -> Story:
    """n1 is the own pool's, and is lent while it is idle; n2 is the guests', and has a job of theirs."""
    crew = [denoiser(worker_id, models=("m", "n"), slots=slots) for worker_id in ("n1", "n2")]
    story = Story(RESERVED, ENCODER, DECODER, *crew)
    submit(story, 0.0, "home", home_s, "n2", tenant="home")
    return story


def test_a_pool_takes_its_denoiser_back_from_a_borrower_that_ranks_ahead() -> None:
    story = reserved(home_s=400.0)
    submit(story, 0.0, "guest", 50.0, "n1")
    story.at(240.0, JobSubmitted(request("own", 5.0, model="n", tenant="own")), start(encode("own"), "e"))
    story.at(
        240.0,
        TaskFinished(encode("own"), 0.0),
        StopTask(denoise("guest"), "n1", reason="reclaimed"),
        RequeueJob("guest", 1, "RECLAIMED"),
        start(denoise("own"), "n1"),  # though it ranks behind
        start(denoise("guest"), "n2"),  # at home the guest is the first
    )


def test_a_borrower_that_ranks_behind_stays_paused_where_it_is() -> None:
    story = reserved(home_s=1.0)
    submit(story, 0.0, "guest", 50.0, "n1")
    submit(story, 1.0, "own", 5.0, "n1", model="n", tenant="own")
    assert story.started[-1].reason == "ahead of guest"


def test_a_pool_takes_the_last_slot_of_its_denoiser_back_from_a_borrower() -> None:
    story = reserved(home_s=400.0, slots=1)
    submit(story, 0.0, "guest", 50.0, "n1")
    story.at(1.0, JobSubmitted(request("own", 5.0, model="n", tenant="own")), start(encode("own"), "e"))
    story.at(
        1.0,
        TaskFinished(encode("own"), 0.0),
        StopTask(denoise("guest"), "n1", reason="reclaimed"),
        RequeueJob("guest", 1, "RECLAIMED"),
        start(denoise("own"), "n1"),
    )


def test_a_borrower_all_of_whose_latents_are_there_ends_where_it_is() -> None:
    story = reserved(home_s=400.0, slots=1)
    submit(story, 0.0, "guest", 50.0, "n1")
    story.at(239.0, LatentsReady("guest", 0), start(decode("guest"), "d"))
    story.at(240.0, JobSubmitted(request("own", 5.0, model="n", tenant="own")), start(encode("own"), "e"))
    story.at(240.0, TaskFinished(encode("own"), 0.0))
    story.at(241.0, TaskFinished(denoise("guest"), 1.0), start(denoise("own"), "n1"))


def test_a_borrower_takes_no_busy_denoiser_unless_it_borrows_preemptibly() -> None:
    story = reserved(home_s=0.5)
    submit(story, 0.0, "own", 20.0, "n1", model="n")
    submit(story, 0.0, "guest", 0.6)  # it ranks ahead of the own job, and behind the one at home
    story = Story(TWO_POOLS, ENCODER, DECODER, denoiser("n1", slots=3), denoiser("n2", slots=3))
    submit(story, 0.0, "short", 1.0, "n1")
    submit(story, 0.0, "long", 60.0, "n2")
    submit(story, 0.0, "short2", 2.0)


def test_a_pool_that_borrows_preemptibly_uses_every_denoiser_by_rank() -> None:
    pools = tuple(replace(pool, borrow="preemptible") for pool in TWO_POOLS.pools)
    story = Story(SchedulerConfig(pools=pools), ENCODER, DECODER, denoiser("n1", slots=2), denoiser("n2", slots=2))
    submit(story, 0.0, "short", 5.0, "n1")
    submit(story, 0.0, "long", 60.0, "n2")
    submit(story, 1.0, "short2", 4.0, "n2")  # ahead of the long one, at its own
    submit(story, 100.0, "long2", 30.0)  # the slots that are left are behind better-ranked ones
