"""Settings of the decoder."""

from dataclasses import dataclass

from services.stage.config import WorkerConfig


@dataclass(frozen=True)
class DecoderConfig(WorkerConfig):
    """A stage worker. Files are written beside the device's work, on at most `file_threads` threads."""

    file_threads: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.file_threads <= 64:
            raise ValueError("file_threads: must be 1 to 64")
