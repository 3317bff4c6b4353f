"""What the scheduler knows of a job, a task and a worker."""

from dataclasses import dataclass
from enum import Enum


class Stage(Enum):
    """The three panels of a picture, each a kind of worker."""

    ENCODE = "encode"
    DENOISE = "denoise"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Estimated device seconds of a job per stage, over all its outputs. Each ≥ 0 and finite."""

    encode_s: float
    denoise_s: float
    decode_s: float

    @property
    def total_s(self) -> float:
        return self.encode_s + self.denoise_s + self.decode_s


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A priced job, as submitted.

    `priority_class` is "batch", "standard" or "premium"; `deadline_s` is on the clock of `now` (Unix seconds);
    `output_count` is the number of decode tasks.
    """

    job_id: str
    tenant: str
    model: str
    priority_class: str
    seconds: StageSeconds
    output_count: int = 1
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One call to one worker: a job's encode, its denoise, or the decode of one output."""

    job_id: str
    stage: Stage
    output_index: int = 0


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as its heartbeat describes it. `slots` is how many tasks it takes at once; resident models are hot."""

    worker_id: str
    stage: Stage
    models: frozenset[str]
    resident: frozenset[str]
    slots: int
    ready: bool
    labels: tuple[tuple[str, str], ...] = ()
