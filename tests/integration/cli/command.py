"""The `triptych` command as a process, for what cannot be seen from inside."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

COMMAND = [sys.executable, "-m", "triptych.cli"]
WAIT_S = 90.0


def run(*arguments: str, state_dir: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=_environment(state_dir),
        check=False,
    )


def run_with(
    *arguments: str | bytes, state_dir: Path, folder: Path, environment: Mapping[str, str] = {}, redirect: str = ""
) -> "subprocess.CompletedProcess[bytes]":
    """Run a command to its end in a folder, with variables set, its output redirected as a shell does it."""
    return subprocess.run(
        ["/bin/bash", "-c", f'set -o pipefail; "$@" {redirect}', "bash", *COMMAND, *arguments],
        capture_output=True,
        timeout=WAIT_S,
        cwd=folder,
        env={**_environment(state_dir), **environment},
        check=False,
    )


def start(*arguments: str, state_dir: Path | None = None) -> "subprocess.Popen[str]":
    """Start a command in a process group of its own, as a terminal would."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        env=_environment(state_dir),
    )


def read_until(process: "subprocess.Popen[str]", words: Sequence[str]) -> str:
    """Read its standard error up to a line with one of the words; that line. The test's own timeout bounds it."""
    assert process.stderr is not None
    for line in process.stderr:
        if any(word in line for word in words):
            return line
    raise AssertionError(f"the command ended without any of {words}")


def press_ctrl_c(process: "subprocess.Popen[str]") -> None:
    """SIGINT to the whole group, as a terminal sends it."""
    os.killpg(process.pid, signal.SIGINT)


def _environment(state_dir: Path | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRIPTYCH_")}
    return kept if state_dir is None else {**kept, "TRIPTYCH_STATE": str(state_dir)}
