"""Settings of the denoiser."""

from dataclasses import dataclass
from typing import Literal

from services.stage.config import WorkerConfig


@dataclass(frozen=True)
class DenoiserConfig(WorkerConfig):
    """A stage worker. Of its active jobs the best-ranked runs; the others are paused where they give way."""

    max_active_jobs: int = 3
    # Where a job gives way to a better-ranked one: before each "block" of a network, or "step", or never ("off").
    preemption: Literal["block", "step", "off"] = "block"
    # Whether equal forwards of jobs that allow it are computed together where that is measured to pay, and how many at
    # most.
    merging: Literal["on", "off"] = "on"
    max_merge: int = 8
    # A job's progress is told no more often than this; 0: after each step.
    progress_seconds: float = 0.1
    # Device time between two checkpoints of a job.
    checkpoint_seconds: float = 10.0
    # A preview that no decoder has made by then is given up.
    preview_timeout_seconds: float = 5.0
    # Previews of one output begin so far apart at least, however often a job asks for them: nobody sees more.
    preview_spacing_seconds: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.max_merge <= 64:
            raise ValueError("max_merge: must be 1 to 64")
        if not self.checkpoint_seconds > 0:
            raise ValueError("checkpoint_seconds: must be above 0")
        if not 0 < self.preview_timeout_seconds <= 60:
            raise ValueError("preview_timeout_seconds: must be above 0, at most 60")
        if not 0 <= self.preview_spacing_seconds <= 60:
            raise ValueError("preview_spacing_seconds: must be 0 to 60")
        if not 0 <= self.progress_seconds <= 60:
            raise ValueError("progress_seconds: must be 0 to 60")
