"""Amounts that change while jobs are under way: the configuration, and the split of the denoisers."""

from dataclasses import replace

from services.router.core.actions import ResplitPools
from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.events import ConfigReloaded, JobSubmitted, TaskFinished, Ticked, WorkerSeen
from services.router.core.job import Stage
from tests.scenarios.story import Story, decode, denoise, encode, start
from tests.scenarios.virtual_clock import request, worker

IMAGES = PoolConfig(name="images", models=("image",), max_backlog_s=1e6)
VIDEOS = PoolConfig(name="videos", models=("video",), max_backlog_s=1e6)
MODELS = ("image", "video")
CREW = (
    worker("e", Stage.ENCODE, MODELS, slots=99),
    worker("d", Stage.DECODE, MODELS, slots=99),
    *(worker(f"n{index}", Stage.DENOISE, MODELS) for index in range(4)),
)


def split(story: Story) -> list[int]:
    return [pool.workers for pool in story.scheduler.pools()]


def queue(story: Story, model: str, count: int) -> None:
    for index in range(count):
        story.tell(0.0, JobSubmitted(request(f"{model}{index}", 30.0, model=model)))
        story.tell(0.0, TaskFinished(encode(f"{model}{index}"), 0.0))


def test_a_reload_keeps_every_job_and_finds_a_pool_for_those_that_have_none() -> None:
    story = Story(SchedulerConfig(pools=(IMAGES, VIDEOS)), *CREW)
    queue(story, "image", 3)
    queue(story, "video", 3)
    ranks = {job_id: story.scheduler.job(job_id).rank for job_id in ("image0", "image2", "video2")}  # type: ignore[union-attr]
    one = PoolConfig(name="all", max_backlog_s=1e6, long_job_s=20.0, max_long_running=4)
    story.at(1.0, ConfigReloaded(SchedulerConfig(pools=(one,))))
    assert split(story) == [4]
    assert {job_id: story.scheduler.job(job_id).rank for job_id in ranks} == ranks  # type: ignore[union-attr]
    assert {story.scheduler.job(job_id).pool for job_id in ranks} == {"all"}  # type: ignore[union-attr]
    # The denoiser that ends an image takes the best-ranked of all.
    story.at(2.0, TaskFinished(denoise("image0"), 2.0), start(decode("image0"), "d"), start(denoise("image2"), "n0"))


def test_a_reload_starts_what_it_allows() -> None:
    capped = replace(VIDEOS, long_job_s=20.0, max_long_running=1)
    story = Story(SchedulerConfig(pools=(IMAGES, capped)), *CREW)
    queue(story, "video", 2)
    story.at(1.0, ConfigReloaded(SchedulerConfig(pools=(IMAGES, VIDEOS))), start(denoise("video1"), "n3"))
    story.at(2.0, ConfigReloaded(SchedulerConfig(policy="fcfs")))
    story.at(2.0, ConfigReloaded(SchedulerConfig(pools=(IMAGES, VIDEOS))))


def test_a_reload_takes_its_bounds_for_newcomers() -> None:
    story = Story(SchedulerConfig(pools=(IMAGES, VIDEOS)), *CREW)
    queue(story, "video", 3)
    story.at(1.0, ConfigReloaded(SchedulerConfig(pools=(IMAGES, VIDEOS), max_queued_jobs=2)))
    assert story.scheduler.estimate_verdict(request("x", 1.0, model="image"), 1.0).reason == "QUEUE_FULL"


def test_denoisers_follow_the_backlog_one_by_one_and_come_back() -> None:
    story = Story(SchedulerConfig(pools=(IMAGES, VIDEOS), rebalance=True, rebalance_s=10.0), *CREW)
    queue(story, "video", 8)
    assert split(story) == [2, 2]
    assert story.scheduler.next_tick_s() == 10.0
    story.at(10.0, Ticked())  # asks once
    assert split(story) == [2, 2]
    why = "120.0 s to run per denoiser, 0.0 s in pool images"
    story.at(20.0, Ticked(), ResplitPools("images", "videos", why), start(denoise("video2"), "n2"))
    assert split(story) == [1, 3]
    story.at(30.0, Ticked())
    story.at(40.0, Ticked())  # the last one stays
    assert split(story) == [1, 3]
    for index in range(8):
        story.tell(50.0, TaskFinished(denoise(f"video{index}"), 30.0))
        story.tell(50.0, TaskFinished(decode(f"video{index}"), 0.0))
    story.at(60.0, Ticked())
    story.at(70.0, Ticked(), ResplitPools("videos", "images", "back to the configured shares"))
    assert split(story) == [2, 2]
    story.at(80.0, Ticked())
    assert story.scheduler.next_tick_s() is None


def test_what_is_gone_before_the_next_look_moves_nobody() -> None:
    story = Story(SchedulerConfig(pools=(IMAGES, VIDEOS), rebalance=True, rebalance_s=100.0), *CREW)
    queue(story, "video", 3)
    story.at(100.0, Ticked())
    story.at(200.0, Ticked())
    assert split(story) == [2, 2]


def test_a_worker_that_joins_finds_the_split_that_the_backlog_asked_for() -> None:
    story = Story(SchedulerConfig(pools=(IMAGES, VIDEOS), rebalance=True, rebalance_s=10.0), *CREW)
    queue(story, "video", 8)
    story.tell(10.0, Ticked())
    story.tell(20.0, Ticked())
    story.tell(21.0, WorkerSeen(worker("n4", Stage.DENOISE, MODELS)))
    assert split(story) == [1, 4]
