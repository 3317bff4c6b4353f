"""One job's way through a suite, as its client sees it; and what jobs of a kind take when they have the suite alone."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

from services.router.core.job import StageSeconds
from triptych.client import Client
from triptych.durations import seconds_of
from triptych.endings import raise_if_failed
from triptych.v1.job_pb2 import Job, JobEvent, JobSpec, Stage


@dataclass(frozen=True, slots=True)
class Passage:
    """Times on this machine's clock. `denoise_at`, `decode_at`: the router gave the job to that stage's worker.

    `device_s`: seconds that the denoiser's device worked for it.
    """

    began_at: float
    denoise_at: float
    decode_at: float
    ended_at: float
    device_s: float

    @property
    def latency_s(self) -> float:
        return self.ended_at - self.began_at

    @property
    def seconds(self) -> StageSeconds:
        """What went by until the denoise, until the decode, and until the picture was in the client's hands."""
        return StageSeconds(
            self.denoise_at - self.began_at, self.decode_at - self.denoise_at, self.ended_at - self.decode_at
        )


async def pass_through(client: Client, spec: JobSpec, began_at: float | None = None) -> Passage:
    """Make a picture; its passage begins now, or at the given time. Raises `TriptychError`."""
    began_at = time.time() if began_at is None else began_at
    job_id = ""
    started: dict[int, float] = {}
    async for item in client.stream(spec):
        if isinstance(item, Job):
            job_id = item.job_id
        elif isinstance(item, JobEvent):
            raise_if_failed(item)
            if item.HasField("stage_started"):
                started.setdefault(item.stage_started.stage, seconds_of(item.time))
    ended_at = time.time()
    device_s = seconds_of((await client.job(job_id)).denoise_time)
    return Passage(began_at, started[Stage.STAGE_DENOISE], started[Stage.STAGE_DECODE], ended_at, device_s)


@dataclass
class Solo:
    """Passages of jobs of one kind, each alone in the suite."""

    passages: list[Passage] = field(default_factory=list)

    @property
    def seconds(self) -> StageSeconds:
        """The median of each stage; their sum is the service of the kind."""
        return _medians([passage.seconds for passage in self.passages])

    @property
    def jitter_s(self) -> float:
        """How much longer than the median a job alone takes one time in twenty."""
        latencies = [passage.latency_s for passage in self.passages]
        return quantiles(latencies, n=20)[-1] - median(latencies)


def _medians(seconds: Sequence[StageSeconds]) -> StageSeconds:
    return StageSeconds(
        median(each.encode_s for each in seconds),
        median(each.denoise_s for each in seconds),
        median(each.decode_s for each in seconds),
    )
