"""What a process wrote: a file of bounded size, and the last lines at hand."""

import contextlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

MAX_LINE_BYTES = 16 * 1024


class ProcessLog:
    """Appends to `path`; at `max_bytes` the file becomes `path.1`, which replaces the one before it.

    `tail` has the last lines. `on_line` is called with each.
    """

    def __init__(self, path: Path, *, max_bytes: int = 4 << 20, tail_lines: int = 40) -> None:
        self.path = path
        self.tail: deque[str] = deque(maxlen=tail_lines)
        self.on_line: Callable[[str], None] | None = None
        self._max_bytes = max_bytes
        self._file: BinaryIO | None = None
        self._partial = b""

    def write(self, data: bytes) -> None:
        """Add output of the process, in pieces of any size. What a full disk does not take is in `tail` alone."""
        # An error would end whoever reads the process's pipe, and the process would block as soon as that is full.
        with contextlib.suppress(OSError):
            self._append(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._partial) > MAX_LINE_BYTES:
            self.finish_line()

    def finish_line(self) -> None:
        """Count what came last as a line, though no line end came: the process has ended."""
        if self._partial:
            self._take(self._partial)
            self._partial = b""

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _append(self, data: bytes) -> None:
        if self._file is None:
            self._file = self.path.open("ab", buffering=0)
        if self._file.tell() + len(data) > self._max_bytes:
            self._rotate()
        self._file.write(data)

    def _take(self, line: bytes) -> None:
        text = line[:MAX_LINE_BYTES].decode(errors="replace").rstrip()
        self.tail.append(text)
        if self.on_line is not None:
            self.on_line(text)

    def _rotate(self) -> None:
        assert self._file is not None, "only an open log is rotated"
        self._file.close()
        self.path.replace(self.path.with_name(self.path.name + ".1"))
        self._file = self.path.open("ab", buffering=0)
