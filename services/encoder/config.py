"""Settings of the encoder."""

from dataclasses import dataclass
from typing import Literal

from services.stage.config import WorkerConfig

MIB = 1024 * 1024


@dataclass(frozen=True)
class EncoderConfig(WorkerConfig):
    """A stage worker that caches."""

    max_active_jobs: int = 16
    # Conditioning kept in this process.
    cache_bytes: int = 256 * MIB
    # Who finds a prompt that was encoded before: everyone ("shared"), or only its tenant ("tenant"). A shared cache
    # tells, by its quick answer, that somebody has asked for the same prompt.
    cache_scope: Literal["shared", "tenant"] = "shared"
    # Prompts encoded at once. Jobs that must be reproducible are never among them.
    max_batch: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cache_bytes < 0:
            raise ValueError("cache_bytes: must not be negative")
        if not 1 <= self.max_batch <= 64:
            raise ValueError("max_batch: must be 1 to 64")
