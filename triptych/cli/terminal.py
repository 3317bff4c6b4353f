"""Standard output for results, standard error for everything that only a person wants."""

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from triptych.streams import nowhere
from triptych.v1 import job_pb2, router_service_pb2
from triptych.visible_text import visible

GAP = "  "


class Unwritable(Exception):
    """Standard output takes nothing: a full disk, say."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """Where a command writes. With `as_json`, standard output carries JSON and nothing else.

    What others wrote, prompts and errors, cannot steer the terminal. JSON is plain ASCII, whatever the terminal's
    encoding. Results raise `BrokenPipeError` once nobody reads them, and `Unwritable`; notes raise nothing.
    """

    as_json: bool

    def say(self, text: str = "") -> None:
        """A line of a result for a person; nothing with `--json`."""
        if not self.as_json:
            self._write(visible(text))

    def note(self, text: str) -> None:
        """A line beside the result, on standard error."""
        note(text)

    def warn(self, warnings: Iterable[str]) -> None:
        """Notes, a line each."""
        for warning in warnings:
            self.note(warning)

    def emit(self, value: Any) -> None:
        """A JSON value on a line of its own; nothing without `--json`."""
        if self.as_json:
            self._write(json.dumps(value))

    def tell(self, value: Any) -> None:
        """Like `emit`, for a long-lived command: whoever listened may have gone, or the disk be full."""
        try:
            self.emit(value)
        except BrokenPipeError:
            sys.stdout = nowhere()
        except Unwritable:
            return

    def _write(self, line: str) -> None:
        with _writing():
            print(line, flush=True)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Aligned columns; a dash stands for an empty cell."""
        lines = [list(header), *([visible(cell) or "-" for cell in row] for row in rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
        for line in lines:
            self.say(GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def note(text: str) -> None:
    """Write a line for a person to standard error. If nobody reads it, the command goes on."""
    try:
        print(visible(text), file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = nowhere()


def flush_results() -> None:
    """Have everything written that was printed. Raises `BrokenPipeError` and `Unwritable`."""
    with _writing():
        sys.stdout.flush()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        sys.stdout = nowhere()
        raise Unwritable(f"standard output cannot be written: {error.strerror or error}") from error


def record(message: Message) -> dict[str, Any]:
    """A message as protobuf's JSON, names as in the contract; 64-bit numbers are strings there, durations "1.5s".

    The bytes of attachments are left out.
    """
    if isinstance(message, job_pb2.Job):
        message = _without_attachments(message)
    made: dict[str, Any] = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return made


def enum_word(name: str) -> str:
    """The last word of an enum value's name, as people say it: "JOB_STATE_QUEUED" is "queued"."""
    return name.rpartition("_")[2].lower()


def stage_word(stage: job_pb2.Stage.ValueType) -> str:
    """ "encode", "denoise", "decode", or nothing."""
    return "" if stage == job_pb2.STAGE_UNSPECIFIED else enum_word(job_pb2.Stage.Name(stage))


def served_words(model: router_service_pb2.Model) -> str:
    """The stages of a model that some worker serves."""
    return ", ".join(stage_word(stage) for stage in model.served_stages)


def seconds(value: float) -> str:
    """A time as people read it: "350 ms", "4.2 s", "3 min 05 s"."""
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 99.95:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s"


def _without_attachments(job: job_pb2.Job) -> job_pb2.Job:
    lean = job_pb2.Job()
    lean.CopyFrom(job)
    for attachment in lean.spec.attachments:
        attachment.data = b""
    return lean
