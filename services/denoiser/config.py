"""Settings of the denoiser."""

from dataclasses import dataclass

from services.stage.config import WorkerConfig


@dataclass(frozen=True)
class DenoiserConfig(WorkerConfig):
    """A stage worker. Of its active jobs the best-ranked runs; the others are paused between two of their steps."""

    max_active_jobs: int = 3
