"""What is cut before it goes into a log or an error: a client may send megabytes, and they may be quoted."""

from hypothesis import given
from hypothesis import strategies as st

from triptych.errors import (
    MAX_DESCRIPTION,
    MAX_MESSAGE,
    MAX_VIOLATIONS,
    Reason,
    TriptychError,
    Violation,
    from_status,
    invalid,
    to_status,
)
from triptych.logs import MAX_TEXT, cut_text, show_controls
from triptych.rpc.channel import METADATA_BYTES


def test_a_line_for_a_terminal_does_not_steer_it() -> None:
    line = show_controls(None, "", {"event": "call_failed", "error": "\x1b[2J gone", "count": 1})
    assert line == {"event": "call_failed", "error": r"\u001b[2J gone", "count": 1}


def test_long_text_in_a_line_is_cut() -> None:
    line = cut_text(
        None, "", {"event": "call_failed", "error": "x" * 1_000_000, "exception": "y" * 9_000 + "ValueError"}
    )
    assert line["event"] == "call_failed"
    assert len(line["error"]) < MAX_TEXT + 50
    assert line["error"].endswith("(of 1000000 characters)")
    assert "ValueError" in line["exception"]


@given(st.sampled_from("xé\U0001f980\ud800"), st.integers(0, 5_000), st.integers(1, 100))
def test_an_error_fits_into_the_end_of_a_call(letter: str, length: int, count: int) -> None:
    text = letter * length
    error = invalid(*[Violation(text, text)] * count)
    error.metadata.update(pool=text)
    status = to_status(error)
    assert len(grpc_message(status.message)) + len(status.SerializeToString()) * 4 / 3 < METADATA_BYTES - 1024
    told = from_status(status)
    assert told.reason is Reason.INVALID_FIELD
    assert len(told.violations) == min(count, MAX_VIOLATIONS)


def test_short_errors_travel_as_they_are() -> None:
    error = TriptychError(Reason.STAGE_FAILED, "m" * MAX_MESSAGE, violations=[Violation("f", "d" * MAX_DESCRIPTION)])
    told = from_status(to_status(error))
    assert (told.message, told.violations) == (error.message, error.violations)


def grpc_message(text: str) -> str:
    """As gRPC writes it: every byte that is not printable ASCII as three characters."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 37 else f"%{byte:02X}" for byte in text.encode())
