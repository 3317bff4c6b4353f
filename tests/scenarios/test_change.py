"""A configuration that changes while jobs are under way."""

from dataclasses import replace
from math import inf

from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.events import ConfigReloaded, JobSubmitted, TaskFinished
from services.router.core.job import Stage
from tests.scenarios.story import Story, decode, denoise, encode, start
from tests.scenarios.virtual_clock import request, worker

IMAGES = PoolConfig(name="images", models=("image",), max_backlog_s=inf)
VIDEOS = PoolConfig(name="videos", models=("video",), max_backlog_s=inf)
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
    one = PoolConfig(name="all", max_backlog_s=inf, max_running=4)
    story.at(1.0, ConfigReloaded(SchedulerConfig(pools=(one,))))
    assert split(story) == [4]
    assert {job_id: story.scheduler.job(job_id).rank for job_id in ranks} == ranks  # type: ignore[union-attr]
    assert {story.scheduler.job(job_id).pool for job_id in ranks} == {"all"}  # type: ignore[union-attr]
    # The denoiser that ends an image takes the best-ranked of all.
    story.at(2.0, TaskFinished(denoise("image0"), 2.0), start(decode("image0"), "d"), start(denoise("image2"), "n0"))


def test_a_reload_starts_what_it_allows() -> None:
    capped = replace(VIDEOS, max_running=1)
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
