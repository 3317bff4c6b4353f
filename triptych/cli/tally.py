"""How far a long computation is: a bar on standard error, where that is a terminal and rich is installed."""

import contextlib
import sys
from types import TracebackType
from typing import Any, Self


class Tally:
    """Counts up to `total`, or without end if that is None."""

    def __init__(self, words: str, total: int | None) -> None:
        self._words = words
        self._total = total
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            with contextlib.suppress(ImportError):
                from rich.console import Console
                from rich.progress import Progress

                self._bar = Progress(console=Console(stderr=True), transient=True)
                self._task = self._bar.add_task(self._words, total=self._total)
                self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, words: str) -> None:
        """What it is busy with."""
        if self._bar is not None:
            self._bar.update(self._task, description=words)

    def advance(self) -> None:
        """One more."""
        if self._bar is not None:
            self._bar.advance(self._task)
