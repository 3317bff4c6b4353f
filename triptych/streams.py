"""Standard output and standard error that take any text, whatever their encoding, and may be closed."""

import contextlib
import io
import os
import sys
from typing import TextIO


def fit_streams() -> None:
    """Have characters that a stream's encoding lacks written as escapes; what goes to a closed one goes nowhere."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, nowhere())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def nowhere() -> TextIO:
    """A stream that takes everything and keeps nothing, for the rest of the process."""
    return open(os.devnull, "w", encoding="utf-8", errors="backslashreplace")


class Lenient:
    """Writes to a stream for as long as somebody reads it: a log that cannot be written is no reason to fail."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()
