"""What the scheduler keeps of an accepted job."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from services.router.core.config import PoolConfig
from services.router.core.job import JobRequest, Stage, Task
from services.router.core.task import TaskRecord, TaskState

Seconds = tuple[float, float, float]
"""Seconds of encode, denoise and decode."""

Key = tuple[float, str, int]
"""Place in a queue, lower first: rank, job id, output index."""


@dataclass(slots=True)
class JobRecord:
    """An accepted job that is not over.

    `attempt` counts starts of its denoise, `reruns` results that had to be made again. `latents` are the outputs whose
    latents are durable, `targets` those that the running denoise is to make.
    """

    request: JobRequest
    rank: float
    pool: str
    is_long: bool
    attempt: int
    encode: TaskRecord
    denoise: TaskRecord
    decodes: tuple[TaskRecord, ...]
    latents: set[int] = field(default_factory=set)
    targets: set[int] = field(default_factory=set)
    reruns: int = 0

    @property
    def job_id(self) -> str:
        return self.request.job_id

    @property
    def key(self) -> Key:
        return (self.rank, self.request.job_id, 0)

    @property
    def tasks(self) -> Iterator[TaskRecord]:
        yield self.encode
        yield self.denoise
        yield from self.decodes

    @property
    def unrun(self) -> Seconds:
        """Estimated seconds still to run, by stage."""
        return (self.encode.unrun_s, self.denoise.unrun_s, sum(decode.unrun_s for decode in self.decodes))

    @property
    def queued(self) -> bool:
        """Whether it waits for a denoiser."""
        return self.denoise.state not in (TaskState.RUNNING, TaskState.DONE)

    @property
    def covered(self) -> frozenset[int]:
        """Outputs that need no denoising: their latents or their pixels are durable."""
        return frozenset(self.latents.union(i for i, d in enumerate(self.decodes) if d.state is TaskState.DONE))

    @property
    def all_covered(self) -> bool:
        return len(self.covered) == len(self.decodes)

    @property
    def complete(self) -> bool:
        # The denoise too: its call may be open still, about to report, when the last output is decoded.
        return self.denoise.state is TaskState.DONE and all(d.state is TaskState.DONE for d in self.decodes)

    def amend(self, request: JobRequest, rank: float, *, is_long: bool) -> None:
        """Put another price, and another rank, on the job. What its running denoise has done stays done.

        Outputs that are finished stay so; of the one at work as many seconds are done as before.
        """
        old_s, new_s = self.request.seconds.denoise_s, request.seconds.denoise_s
        self.request, self.rank, self.is_long = request, rank, is_long
        self.encode.seconds, self.denoise.seconds = request.seconds.encode_s, new_s
        for decode in self.decodes:
            decode.seconds = request.seconds.decode_s / len(self.decodes)
        count = max(1, len(self.targets))
        whole, part = divmod(self.denoise.fraction * count, 1.0)
        part = min(1.0, part * old_s / new_s) if new_s > 0 else part
        self.denoise.fraction = min(1.0, (whole + part) / count)

    def task(self, task: Task) -> TaskRecord | None:
        """The record of one of its tasks, None if it has no such task."""
        if task.stage is Stage.DECODE:
            return self.decodes[task.output_index] if 0 <= task.output_index < len(self.decodes) else None
        return self.encode if task.stage is Stage.ENCODE else self.denoise


def new_record(request: JobRequest, rank: float, pool: PoolConfig, attempt: int = 0) -> JobRecord:
    """A job with all its tasks in PENDING."""
    job_id, seconds, count = request.job_id, request.seconds, request.output_count
    return JobRecord(
        request=request,
        rank=rank,
        pool=pool.name,
        is_long=seconds.total_s >= pool.long_job_s,
        attempt=attempt,
        encode=TaskRecord(Task(job_id, Stage.ENCODE), seconds.encode_s),
        denoise=TaskRecord(Task(job_id, Stage.DENOISE), seconds.denoise_s),
        decodes=tuple(TaskRecord(Task(job_id, Stage.DECODE, i), seconds.decode_s / count) for i in range(count)),
    )
