"""Shows how a suite comes up: a line for each process that is ready, and what is still awaited."""

import contextlib
import sys
import time
from typing import Any

from triptych.cli.progress import spinner_of
from triptych.cli.terminal import Terminal, seconds
from triptych.visible_text import visible

READY = "ready"


class Startup:
    """Takes each change of a process. On a terminal with rich, a spinner names those that are not ready yet."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._began = time.monotonic()
        self._waiting: dict[str, str] = {}
        self._ready_count = 0
        self._spinner: Any = None

    @property
    def elapsed_s(self) -> float:
        """Since this was made."""
        return time.monotonic() - self._began

    def show(self, name: str, state: str, detail: str) -> None:
        """A process has entered a state."""
        elapsed_s = round(self.elapsed_s, 3)
        self._terminal.tell({"service": name, "state": state, "detail": detail, "elapsed_s": elapsed_s})
        if state == READY:
            self._ready_count += 1
            self._waiting.pop(name, None)
            self._line(f"{name:<12} ready after {seconds(self.elapsed_s)}")
        elif state == "stopped":
            self._waiting.pop(name, None)
        else:
            self._waiting[name] = state
            if self._spinner is None or state not in ("starting", "loading"):
                self._line(f"{name:<12} {state}" + (f": {detail}" if state not in ("starting", "loading") else ""))
        if self._spinner is not None:
            self._spinner.update(self._awaited())

    def open_spinner(self) -> None:
        """Keep a line at the bottom that says what is awaited, where that can be shown."""
        if self._terminal.as_json or not sys.stderr.isatty():
            return
        with contextlib.suppress(ImportError):
            from rich.console import Console

            console = Console(stderr=True)
            self._spinner = console.status("starting", spinner=spinner_of(console))
            self._spinner.start()

    def close_spinner(self) -> None:
        """Take that line away."""
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None

    def _awaited(self) -> str:
        words = [f"{name} ({state})" for name, state in self._waiting.items()]
        if words:
            return ", ".join(words)
        return "waiting for the router to see every worker" if self._ready_count > 1 else "starting"

    def _line(self, text: str) -> None:
        if self._terminal.as_json:
            return
        if self._spinner is not None:
            self._spinner.console.print(visible(text), markup=False, highlight=False)
        else:
            with contextlib.suppress(OSError):  # a file on a full disk
                self._terminal.note(text)
