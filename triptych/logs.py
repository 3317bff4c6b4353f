"""Logging: structlog, one line an event, JSON unless a person is looking."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog

from triptych.streams import Lenient, fit_streams
from triptych.visible_text import visible

# Longer text in a line is cut: an error may quote what a client sent, and a client may send megabytes.
MAX_TEXT = 4000


def cut_text(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor that bounds each text of a line; tracebacks keep their end, which says what went wrong."""
    for key, value in event.items():
        text = value if isinstance(value, str) else ""
        if len(text) > MAX_TEXT:
            kept = text[-MAX_TEXT:] if key == "exception" else text[:MAX_TEXT]
            event[key] = f"{kept} (of {len(text)} characters)"
    return event


def show_controls(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A processor for a terminal, which text from elsewhere must not steer; JSON has its own escapes."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = visible(value)
    return event


def configure_logs(level: str = "info") -> None:
    """Set up structlog for this process. Lines go to standard error; `level` is a name that `logging` knows.

    No line fails: what the stream's encoding lacks is written as an escape, and if nobody reads it, it is lost.
    """
    fit_streams()
    pretty = sys.stderr.isatty()
    # The prettier tracebacks show local variables: prompts, and tokens of clients.
    console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    renderer = console if pretty else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *([] if pretty else [structlog.processors.format_exc_info]),
            cut_text,
            *([show_controls] if pretty else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, Lenient(sys.stderr))),
        cache_logger_on_first_use=True,
    )
