"""What a log line of an exception shows."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import structlog
from triptych.logs import configure_logs

configure_logs()

def fail(prompt):
    raise ValueError("what went wrong")

try:
    fail("sec" + "ret")
except ValueError:
    structlog.get_logger().exception("call_failed")
"""


@pytest.mark.parametrize("on_a_terminal", [False, True], ids=["to a file", "on a terminal"])
def test_a_traceback_shows_no_variables(on_a_terminal: bool) -> None:
    reading, writing = os.openpty() if on_a_terminal else os.pipe()
    subprocess.run([sys.executable, "-c", PROGRAM], stderr=writing, check=True, timeout=60)
    text = os.read(reading, 65536).decode()
    os.close(reading)
    os.close(writing)
    assert "call_failed" in text
    assert "what went wrong" in text
    assert "secret" not in text
