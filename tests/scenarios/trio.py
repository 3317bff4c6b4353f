"""One worker a stage, and jobs that have come as far as the denoiser."""

from math import inf

from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.events import JobSubmitted, TaskFinished
from services.router.core.job import Stage
from tests.scenarios.story import Story, denoise, encode
from tests.scenarios.virtual_clock import request, worker

CONFIG = SchedulerConfig(pools=(PoolConfig(name="all", max_backlog_s=inf),))
TRIO = (worker("e", Stage.ENCODE, slots=9), worker("n", Stage.DENOISE), worker("d", Stage.DECODE, slots=9))


def denoising(*job_ids: str, outputs: int = 1, config: SchedulerConfig = CONFIG) -> Story:
    """The jobs are encoded; the first is being denoised, or as many as there is room for."""
    story = Story(config, *TRIO)
    for job_id in job_ids:
        story.tell(0.0, JobSubmitted(request(job_id, 4.0, decode_s=1.0, outputs=outputs)))
        story.tell(0.0, TaskFinished(encode(job_id), 0.0))
    assert story.scheduler.job(job_ids[0]).running == (denoise(job_ids[0]),)  # type: ignore[union-attr]
    return story
