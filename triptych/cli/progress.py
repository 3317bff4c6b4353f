"""A job's progress on standard error: a bar on a terminal, else a line now and then."""

import sys
from types import TracebackType
from typing import Any, Protocol, Self

from triptych.cli.story import Gauge, sentence
from triptych.cli.terminal import note
from triptych.v1 import job_pb2
from triptych.visible_text import visible

LINE_EVERY = 0.25


class Progress(Protocol):
    """Shows the events of one job while it is open."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def show(self, event: job_pb2.JobEvent) -> None:
        """Show one event."""


def spinner_of(console: Any) -> str:
    """The name of rich's spinner for a console: one that its encoding has."""
    return "dots" if console.encoding.startswith("utf") else "line"


def open_progress(job_id: str) -> Progress:
    """The bar where standard error is a terminal and rich is installed, else lines."""
    if sys.stderr.isatty():
        try:
            return BarProgress(job_id)
        except ImportError:
            pass
    return LineProgress(job_id)


class LineProgress:
    """A line for each event, and one at each quarter of a stage."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._last: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def show(self, event: job_pb2.JobEvent) -> None:
        """Write the event's line, unless it is one of many steps."""
        if event.WhichOneof("event") == "progress":
            mark = (event.progress.stage, int(event.progress.fraction / LINE_EVERY))
            if mark == self._last:
                return
            self._last = mark
        note(f"{self._job_id}: {sentence(event)}")


class BarProgress:
    """One bar for the whole job, with stage and step beside it. Raises `ImportError` without rich."""

    def __init__(self, job_id: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        self._job_id = job_id
        self._gauge = Gauge()
        self._bar: Any = Progress(
            SpinnerColumn(spinner_of(console)),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=console,
        )
        self._task: Any = self._bar.add_task("waiting", total=1.0)

    def __enter__(self) -> Self:
        self._bar.console.print(f"job {self._job_id}", highlight=False)
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, event: job_pb2.JobEvent) -> None:
        """Move the bar."""
        self._gauge.take(event)
        self._bar.update(self._task, completed=self._gauge.fraction, description=visible(self._gauge.words))
