"""Who the stories of dispatch are about, and how their jobs come in."""

from math import inf

from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.events import JobSubmitted, TaskFinished
from services.router.core.job import Stage, WorkerInfo
from tests.scenarios.story import Story, denoise, encode, start
from tests.scenarios.virtual_clock import request, worker

ONE_POOL = SchedulerConfig(pools=(PoolConfig(name="all", max_backlog_s=inf),))
TWO_POOLS = SchedulerConfig(
    pools=(
        PoolConfig(name="short", max_estimate_s=20.0, max_backlog_s=inf, borrow="idle"),
        PoolConfig(name="long", max_backlog_s=inf, borrow="preemptible"),
    ),
)
ENCODER = worker("e", Stage.ENCODE, ("m", "n"), slots=99)
DECODER = worker("d", Stage.DECODE, ("m", "n"), slots=99)


def denoiser(worker_id: str, slots: int = 1, **options: object) -> WorkerInfo:
    return worker(worker_id, Stage.DENOISE, slots=slots, **options)  # type: ignore[arg-type]


def submit(story: Story, now: float, job_id: str, denoise_s: float, *expected: str, **options: object) -> None:
    """Submit a job and have it encoded at once; `expected` is where its denoise starts, if it does."""
    story.at(now, JobSubmitted(request(job_id, denoise_s, **options)), start(encode(job_id), "e"))  # type: ignore[arg-type]
    story.at(now, TaskFinished(encode(job_id), 0.0), *(start(denoise(job_id), place) for place in expected))
