"""What the scheduler keeps of an accepted job."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.router.core.config import PoolConfig
from services.router.core.job import JobRequest, Stage, Task
from services.router.core.task import Key, TaskRecord, TaskState

if TYPE_CHECKING:
    from services.router.core.lane import Lane

Seconds = tuple[float, float, float]
"""Seconds of encode, denoise and decode."""


@dataclass(slots=True)
class JobRecord:
    """An accepted job that is not over.

    `attempt` counts starts of its denoise, `reruns` results that had to be made again. `latents` are the outputs whose
    latents are durable, `targets` those that the running denoise is to make. `refines`: latents of another job, from
    which it goes on, are kept for it. `lane` is where it queues, while it is in the book, and `booked` what the ledgers
    hold of it.
    """

    request: JobRequest
    key: Key
    pool: str
    is_long: bool
    attempt: int
    encode: TaskRecord
    denoise: TaskRecord
    decodes: tuple[TaskRecord, ...]
    tasks: tuple[TaskRecord, ...]
    latents: frozenset[int] = frozenset()
    targets: frozenset[int] = frozenset()
    refines: bool = False
    reruns: int = 0
    lane: "Lane | None" = None
    booked: Seconds | None = None

    @property
    def job_id(self) -> str:
        return self.request.job_id

    @property
    def rank(self) -> float:
        return self.key[0]

    @property
    def unrun(self) -> Seconds:
        """Estimated seconds still to run, by stage."""
        decodes = self.decodes
        decode_s = decodes[0].unrun_s if len(decodes) == 1 else sum([decode.unrun_s for decode in decodes])
        return (self.encode.unrun_s, self.denoise.unrun_s, decode_s)

    @property
    def encoded(self) -> bool:
        """Whether its conditioning is there, as far as is known."""
        return self.encode.state is TaskState.DONE

    def waiting(self, record: TaskRecord) -> TaskState:
        """The state of one of its tasks that is to be run: it waits for a worker, or for the conditioning first."""
        return TaskState.READY if self.encoded or record is self.encode else TaskState.PENDING

    @property
    def queued(self) -> bool:
        """Whether it waits for a denoiser."""
        state = self.denoise.state
        return state is not TaskState.RUNNING and state is not TaskState.DONE

    @property
    def covered(self) -> frozenset[int]:
        """Outputs that need no denoising: their latents or their pixels are durable."""
        if not self.decodes:
            return self.latents
        decoded = [index for index, decode in enumerate(self.decodes) if decode.state is TaskState.DONE]
        return self.latents.union(decoded) if decoded else self.latents

    @property
    def missing_share(self) -> float:
        """The part of its outputs that is to be denoised still."""
        return 1.0 - len(self.covered) / self.request.output_count

    @property
    def all_covered(self) -> bool:
        return len(self.covered) == self.request.output_count

    @property
    def complete(self) -> bool:
        # The denoise too: its call may be open still, about to report, when the last output is decoded.
        return self.denoise.state is TaskState.DONE and all(d.state is TaskState.DONE for d in self.decodes)

    def amend(self, request: JobRequest, rank: float, *, is_long: bool) -> None:
        """Put another price, and another rank, on the job. What its running denoise has done stays done.

        Outputs that are finished stay so; of the one at work as many seconds are done as before.
        """
        old_s, new_s = self.request.seconds.denoise_s, request.seconds.denoise_s
        self.request, self.key, self.is_long = request, (rank, self.job_id, 0), is_long
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


def is_long(request: JobRequest, pool: PoolConfig) -> bool:
    """Whether the job counts as long in the pool."""
    return request.seconds.total_s >= pool.long_job_s


def new_record(request: JobRequest, rank: float, pool: PoolConfig, attempt: int = 0) -> JobRecord:
    """A job with all its tasks in PENDING."""
    job_id, seconds = request.job_id, request.seconds
    count = request.output_count if Stage.DECODE in request.stages else 0
    encode = TaskRecord(Task(job_id, Stage.ENCODE), seconds.encode_s)
    denoise = TaskRecord(Task(job_id, Stage.DENOISE), seconds.denoise_s, merge_key=request.merge_key)
    decodes = tuple([TaskRecord(Task(job_id, Stage.DECODE, index), seconds.decode_s / count) for index in range(count)])
    return JobRecord(
        request=request,
        key=(rank, job_id, 0),
        pool=pool.name,
        is_long=is_long(request, pool),
        attempt=attempt,
        encode=encode,
        denoise=denoise,
        decodes=decodes,
        tasks=(encode, denoise, *decodes),
    )
