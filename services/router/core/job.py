"""What the scheduler is told of a job, a task and a worker."""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import inf


class Stage(Enum):
    """The three stages of a job, each served by a kind of worker of its own."""

    ENCODE = "encode"
    DENOISE = "denoise"
    DECODE = "decode"

    # Enum's own hashes the name in Python each time, and stages are looked up in every event.
    __hash__ = object.__hash__


STAGES = frozenset(Stage)


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Estimated device seconds of a job per stage, over all its outputs. Each ≥ 0 and finite, else `ValueError`."""

    encode_s: float
    denoise_s: float
    decode_s: float

    def __post_init__(self) -> None:
        if not (0.0 <= self.encode_s < inf and 0.0 <= self.denoise_s < inf and 0.0 <= self.decode_s < inf):
            raise ValueError(f"not seconds, each finite and 0 or more: {self}")

    @property
    def each(self) -> tuple[float, float, float]:
        return (self.encode_s, self.denoise_s, self.decode_s)

    @property
    def total_s(self) -> float:
        return self.encode_s + self.denoise_s + self.decode_s


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A priced job, as submitted.

    `priority_class` is "batch", "standard" or "premium"; `deadline_s` is on the clock of `now` (Unix seconds);
    `output_count`, at least 1, is the number of decode tasks. `stages` are those that it goes through: all three, or
    fewer in a simulation where the denoiser does the work of the others. Jobs of one `merge_key` may share forward
    calls; "": with no other.
    """

    job_id: str
    tenant: str
    model: str
    priority_class: str
    seconds: StageSeconds
    output_count: int = 1
    deadline_s: float | None = None
    stages: frozenset[Stage] = STAGES
    merge_key: str = ""

    def __post_init__(self) -> None:
        if self.output_count < 1:
            raise ValueError(f"output_count of {self.job_id} is {self.output_count}")
        if Stage.DENOISE not in self.stages:
            raise ValueError(f"{self.job_id} has no denoise")

    @property
    def outputs(self) -> frozenset[int]:
        """The indices of its outputs."""
        return _first(self.output_count)


@lru_cache(maxsize=64)
def _first(count: int) -> frozenset[int]:
    return frozenset(range(count))


@dataclass(frozen=True, slots=True)
class Task:
    """One call to one worker: a job's encode, its denoise, or the decode of one output."""

    job_id: str
    stage: Stage
    output_index: int = 0


@dataclass(frozen=True, slots=True)
class Tries:
    """Unsuccessful tries of a task: those that count against the job, those that do not.

    A suspect was running when a worker died: it runs alone from then on, so that it takes no other job down with it,
    until it gets further than ever before.
    """

    task: Task
    failures: int
    setbacks: int
    suspect: bool


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as its heartbeat describes it. `slots` is how many tasks it takes at once; `resident` models are loaded.

    Jobs of a key in `merge_keys` take it less time together.
    """

    worker_id: str
    stage: Stage
    models: frozenset[str]
    resident: frozenset[str]
    slots: int
    ready: bool
    labels: tuple[tuple[str, str], ...] = ()
    merge_keys: frozenset[str] = frozenset()
