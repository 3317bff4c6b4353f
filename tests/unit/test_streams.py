"""Logs and streams of a process that fail at nothing: real processes, each with other streams."""

import subprocess
import sys

import pytest

# Standard error as a strict stream of its own, as a program that embeds a service may have it.
STRICT = "sys.stderr = open(2, 'w', encoding='cp1252', errors='strict', closefd=False)"
LOG = """
import sys
{before}
import structlog
from triptych.logs import configure_logs
configure_logs()
for _ in range(3):
    structlog.get_logger().warning("half a \\udcff, a 🔴 and größer", prompt="🔴 \\udcff")
print("went on 🔴")
"""
PRETTY = "sys.stderr = open(2, 'w', encoding='cp1252', closefd=False); sys.stderr.isatty = lambda: True"


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
@pytest.mark.parametrize(
    ("before", "redirect"),
    [("", ""), (STRICT, ""), (PRETTY, ""), ("", "2>&-"), ("", "2> >(true)"), ("", "2> /dev/full")],
    ids=["plain", "strict", "pretty", "closed", "left", "full"],
)
def test_a_log_line_never_fails(before: str, redirect: str, encoding: str) -> None:
    done = subprocess.run(
        ["/bin/bash", "-c", f'"$@" {redirect}', "bash", sys.executable, "-c", LOG.format(before=before)],
        capture_output=True,
        timeout=60,
        env={"PYTHONIOENCODING": encoding},
        check=False,
    )
    assert done.stdout.startswith(b"went on")
    assert b"Traceback" not in done.stderr
    assert done.stderr.count(b"half a") == (0 if redirect else 3)
