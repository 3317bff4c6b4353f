"""Who runs what, where, and when: told as short stories."""

from math import inf

import pytest

from services.router.core.actions import FinishJob
from services.router.core.config import PolicyName, PoolConfig, SchedulerConfig
from services.router.core.events import (
    ConfigReloaded,
    EncodesBounded,
    JobSubmitted,
    TaskFinished,
    TaskProgressed,
    WorkerSeen,
)
from services.router.core.job import Stage
from tests.scenarios.cast import DECODER, ENCODER, ONE_POOL, TWO_POOLS, denoiser, submit
from tests.scenarios.story import Story, decode, denoise, encode, start
from tests.scenarios.virtual_clock import request, worker


def test_a_burst_runs_shortest_first() -> None:
    story = Story(ONE_POOL, ENCODER, DECODER, denoiser("n"))
    submit(story, 0.0, "first", 5.0, "n")
    submit(story, 1.0, "long", 60.0)
    submit(story, 2.0, "short", 2.0)
    story.at(5.0, TaskFinished(denoise("first"), 5.0), start(decode("first"), "d"), start(denoise("short"), "n"))
    story.at(7.0, TaskFinished(denoise("short"), 2.0), start(decode("short"), "d"), start(denoise("long"), "n"))


def test_a_long_job_is_overtaken_for_kappa_times_the_difference_and_no_longer() -> None:
    story = Story(ONE_POOL, ENCODER, DECODER, denoiser("n"))
    submit(story, 0.0, "busy", 1.0, "n")
    submit(story, 0.0, "long", 60.0, tenant="a")
    submit(story, 4 * 58.0 - 1, "before", 2.0, tenant="b")
    submit(story, 4 * 58.0 + 1, "after", 2.0, tenant="c")
    place = {job_id: story.scheduler.job(job_id).position for job_id in ("before", "long", "after")}  # type: ignore[union-attr]
    assert place == {"before": 0, "long": 1, "after": 2}


def test_a_short_job_joins_a_busy_denoiser_and_a_worse_one_waits() -> None:
    story = Story(ONE_POOL, ENCODER, DECODER, denoiser("n", slots=2))
    submit(story, 0.0, "long", 60.0, "n")
    submit(story, 1.0, "longer", 90.0)
    submit(story, 2.0, "short", 2.0, "n")
    submit(story, 3.0, "shorter", 1.0)  # no slot is left
    story.at(4.0, TaskFinished(denoise("short"), 2.0), start(decode("short"), "d"), start(denoise("shorter"), "n"))


def test_an_idle_denoiser_comes_before_a_busy_one() -> None:
    story = Story(ONE_POOL, ENCODER, DECODER, denoiser("n1", slots=2), denoiser("n2", slots=2))
    submit(story, 0.0, "long", 60.0, "n1")
    submit(story, 1.0, "short", 2.0, "n2")
    submit(story, 2.0, "shorter", 1.0, "n1")  # both are outranked; the long one can wait longer
    submit(story, 2.0, "middle", 10.0)  # n1 has no slot left, and at n2 a better-ranked one runs


def test_progress_is_taken_off_what_a_worker_has_to_run() -> None:
    story = Story(ONE_POOL, ENCODER, DECODER, denoiser("n1", slots=2), denoiser("n2", slots=2))
    submit(story, 0.0, "a", 60.0, "n1")
    submit(story, 0.0, "b", 50.0, "n2")
    story.at(1.0, TaskProgressed(denoise("a"), 0.5))
    assert [view.remaining_s for view in story.scheduler.workers()] == [0.0, 0.0, 30.0, 50.0]
    submit(story, 2.0, "short", 2.0, "n2")  # b ranks behind a


def test_a_resident_model_comes_before_a_cold_one() -> None:
    story = Story(ONE_POOL, ENCODER, DECODER, denoiser("n1", resident=()), denoiser("n2"))
    submit(story, 0.0, "a", 5.0, "n2")
    submit(story, 0.0, "b", 5.0, "n1")


def test_a_resident_model_comes_before_a_cold_one_at_every_stage() -> None:
    """Even where the cold one is idle and the other is not: encodes and decodes are short beside a load."""
    encoders = worker("e1", Stage.ENCODE, resident=(), slots=4), worker("e2", Stage.ENCODE, slots=4)
    decoders = worker("d1", Stage.DECODE, resident=(), slots=4), worker("d2", Stage.DECODE, slots=4)
    story = Story(ONE_POOL, *encoders, *decoders, denoiser("n1"), denoiser("n2"))
    for job_id in ("a", "b"):
        story.at(0.0, JobSubmitted(request(job_id, 5.0, decode_s=1.0)), start(encode(job_id), "e2"))
    for job_id, place in (("a", "n1"), ("b", "n2")):
        story.at(1.0, TaskFinished(encode(job_id), 1.0), start(denoise(job_id), place))
    for job_id in ("a", "b"):
        story.at(2.0, TaskFinished(denoise(job_id), 1.0), start(decode(job_id), "d2"))


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "pools"])
def test_policies_of_the_source_never_give_a_denoiser_two_jobs(policy: PolicyName) -> None:
    story = Story(SchedulerConfig(policy=policy), ENCODER, DECODER, denoiser("n", slots=4))
    submit(story, 0.0, "long", 60.0, "n")
    submit(story, 1.0, "short", 1.0)


def test_one_denoiser_serves_all_pools() -> None:
    story = Story(TWO_POOLS, ENCODER, DECODER, denoiser("n"))
    assert [pool.workers for pool in story.scheduler.pools()] == [1, 0]
    submit(story, 0.0, "long", 60.0, "n")
    submit(story, 0.0, "long2", 60.0)
    submit(story, 0.0, "short", 1.0)
    story.at(60.0, TaskFinished(denoise("long"), 60.0), start(decode("long"), "d"), start(denoise("short"), "n"))
    story.at(61.0, TaskFinished(denoise("short"), 60.0), start(decode("short"), "d"), start(denoise("long2"), "n"))


def test_a_pool_without_a_denoiser_for_a_model_uses_any() -> None:
    other = worker("n2", Stage.DENOISE, ("n",))
    story = Story(TWO_POOLS, ENCODER, DECODER, denoiser("n1"), other)
    assert [view.pool for view in story.scheduler.workers() if view.stage is Stage.DENOISE] == ["short", "long"]
    submit(story, 0.0, "a", 1.0, "n2", model="n")
    submit(story, 0.0, "b", 60.0, "n1", model="m")


def test_jobs_of_a_pool_beyond_its_cap_wait_and_others_pass() -> None:
    pools = (
        PoolConfig("short", max_estimate_s=50.0, max_backlog_s=inf),
        PoolConfig("long", max_backlog_s=inf, max_running=1, borrow="preemptible"),
    )
    config = SchedulerConfig(pools=pools)
    story = Story(config, ENCODER, DECODER, *(denoiser(f"n{i}") for i in range(3)))
    submit(story, 0.0, "long", 60.0, "n1")
    submit(story, 0.0, "long2", 60.0)
    submit(story, 0.0, "short", 40.0, "n0")
    story.at(9.0, TaskFinished(denoise("long"), 9.0), start(decode("long"), "d"), start(denoise("long2"), "n1"))


def test_only_the_first_jobs_are_encoded_ahead() -> None:
    config = SchedulerConfig(pools=ONE_POOL.pools, encode_ahead_jobs=2)
    story = Story(config, ENCODER, DECODER, denoiser("n"))
    submit(story, 0.0, "running", 5.0, "n")
    submit(story, 0.0, "b", 6.0)
    submit(story, 0.0, "c", 7.0)
    story.at(0.0, JobSubmitted(request("d", 8.0)))
    story.at(0.0, JobSubmitted(request("a", 5.5)), start(encode("a"), "e"))  # overtakes, and is first
    story.at(0.0, TaskFinished(encode("a"), 0.0))
    story.at(5.0, TaskFinished(denoise("running"), 5.0), start(decode("running"), "d"), start(denoise("a"), "n"))
    story.at(
        10.0,
        TaskFinished(denoise("a"), 5.0),
        start(decode("a"), "d"),
        start(denoise("b"), "n"),
        start(encode("d"), "e"),
    )


def test_where_there_is_little_room_for_conditioning_jobs_wait_unencoded() -> None:
    story = Story(ONE_POOL, ENCODER, DECODER, denoiser("n"))
    submit(story, 0.0, "busy", 5.0, "n")
    story.at(1.0, EncodesBounded(1))
    submit(story, 1.0, "next", 6.0)
    story.at(1.0, JobSubmitted(request("after", 7.0)))
    story.at(1.0, EncodesBounded(0))
    story.at(5.0, TaskFinished(denoise("busy"), 5.0), start(decode("busy"), "d"), start(denoise("next"), "n"))
    story.at(5.0, ConfigReloaded(SchedulerConfig(pools=ONE_POOL.pools, kappa=4.0)))  # that bound stays
    story.at(6.0, EncodesBounded(None), start(encode("after"), "e"))


def test_decoders_are_filled_by_seconds_up_to_their_slots() -> None:
    decoders = (worker("d1", Stage.DECODE, slots=2), worker("d2", Stage.DECODE))
    story = Story(ONE_POOL, ENCODER, *decoders, denoiser("n"))
    for index, place in enumerate(("d1", "d2", "d1")):
        submit(story, 0.0, f"j{index}", 5.0, "n", decode_s=3.0 - index)
        story.at(1.0, TaskFinished(denoise(f"j{index}"), 1.0), start(decode(f"j{index}"), place))
    submit(story, 2.0, "j3", 5.0, "n")
    story.at(3.0, TaskFinished(denoise("j3"), 1.0))
    story.at(4.0, TaskFinished(decode("j1"), 1.0), FinishJob("j1", "succeeded"), start(decode("j3"), "d2"))


def test_a_worker_that_drains_takes_nothing_new_and_what_runs_goes_on() -> None:
    story = Story(ONE_POOL, ENCODER, DECODER, denoiser("n", slots=2))
    submit(story, 0.0, "a", 5.0, "n")
    story.at(1.0, WorkerSeen(denoiser("n", slots=2, ready=False)))
    verdict = story.scheduler.estimate_verdict(request("x", 1.0), 1.1 + ONE_POOL.absence_grace_s)
    assert verdict.reason == "NO_WORKER"
    story.at(5.0, TaskFinished(denoise("a"), 5.0), start(decode("a"), "d"))


def test_an_accepted_job_waits_for_a_worker_to_come() -> None:
    story = Story(ONE_POOL, ENCODER, DECODER, denoiser("n"))
    submit(story, 0.0, "a", 5.0, "n")
    submit(story, 0.0, "b", 5.0)
    story.at(1.0, WorkerSeen(denoiser("n", ready=False)))
    story.at(5.0, TaskFinished(denoise("a"), 5.0), start(decode("a"), "d"))
    story.at(900.0, WorkerSeen(denoiser("n2")), start(denoise("b"), "n2"))


def test_ties_go_by_job_id_and_starts_carry_the_rank() -> None:
    story = Story(ONE_POOL, ENCODER, DECODER, denoiser("n"))
    submit(story, 0.0, "z", 5.0, "n")
    for job_id, tenant in (("b", "t1"), ("a", "t2")):
        submit(story, 1.0, job_id, 5.0, tenant=tenant)
    story.tell(2.0, TaskFinished(denoise("z"), 5.0))
    view = story.scheduler.job("a")
    assert view is not None
    assert view.running == (denoise("a"),)
    assert view.rank == 1.0 + 4 * 5.0


def test_a_worker_that_takes_twice_its_estimates_counts_as_half_and_comes_last() -> None:
    story = Story(ONE_POOL, ENCODER, DECODER, denoiser("n1"), denoiser("n2"))
    for index in range(8):
        submit(story, float(index), f"a{index}", 10.0, "n1" if index < 5 else "n2")
        story.tell(index + 0.5, TaskFinished(denoise(f"a{index}"), 20.0 if index < 5 else 10.0))
        story.tell(index + 0.5, TaskFinished(decode(f"a{index}"), 0.0))
    submit(story, 9.0, "b", 10.0, "n2")
    submit(story, 9.0, "c", 10.0, "n1")
    backlog_s = story.scheduler.estimate_verdict(request("x", 30.0), 9.0).backlog_s
    assert backlog_s == pytest.approx(20.0 / (1 + 1 / 1.67232))


def test_a_job_joins_its_like_where_that_pays_and_leaves_a_slot_for_one_that_preempts() -> None:
    story = Story(ONE_POOL, ENCODER, DECODER, denoiser("n", slots=4, merge_keys=("m/64x64x1",)))
    submit(story, 0.0, "a", 5.0, "n", merge_key="m/64x64x1")
    submit(story, 0.0, "b", 6.0, "n", merge_key="m/64x64x1")
    submit(story, 0.0, "c", 7.0, "n", merge_key="m/64x64x1")
    submit(story, 0.0, "d", 8.0, merge_key="m/64x64x1")  # the last slot is not for it
    submit(story, 0.0, "other", 9.0)
    submit(story, 0.0, "short", 1.0, "n")


def test_a_job_does_not_join_where_it_is_not_known_to_pay_nor_another_kind() -> None:
    story = Story(ONE_POOL, ENCODER, DECODER, denoiser("n", slots=4, merge_keys=("m/64x64x1",)))
    submit(story, 0.0, "a", 5.0, "n", merge_key="m/128x128x1")
    submit(story, 0.0, "b", 6.0, merge_key="m/128x128x1")
    submit(story, 0.0, "c", 7.0, merge_key="m/64x64x1")


def test_a_job_joins_as_soon_as_it_is_known_to_pay() -> None:
    story = Story(ONE_POOL, ENCODER, DECODER, denoiser("n", slots=4))
    submit(story, 0.0, "a", 5.0, "n", merge_key="k")
    submit(story, 0.0, "b", 6.0, merge_key="k")
    story.at(1.0, WorkerSeen(denoiser("n", slots=4, merge_keys=("k",))), start(denoise("b"), "n"))
