"""Every command on every kind of output: strict encodings, streams that are closed, full or left by their reader."""

import json
import os
import pty
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest

from tests.integration.cli import command
from tests.suite import RunningSuite

PROMPT = "a large red circle 🔴 größer \x1b[31m und so weiter, bis die Zeile zu lang ist"
QUICK = ("--steps", "1", "--seed", "5")
UNKNOWN = "01234567890123456789012345"
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
ENCODINGS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "C locale": C_LOCALE,
}
REDIRECTS = {
    "stdout closed": ">&-",
    "stderr closed": "2>&-",
    "stdout left": "| true",
    "stderr left": "2> >(true)",
    "both closed": ">&- 2>&-",
}
# Each with its exit code. JOB stands for a finished job's id.
COMMANDS = [
    (("jobs",), 0),
    (("jobs", "--json"), 0),
    (("generate", PROMPT, *QUICK, "-o", "größer-🔴.png"), 0),
    (("generate", PROMPT, *QUICK, "-o", "größer-🔴.png", "--json"), 0),
    (("submit", PROMPT, *QUICK, "--json"), 0),
    (("watch", "JOB"), 0),
    (("watch", "JOB", "--json"), 0),
    (("download", "JOB", "-o", "größer-🔴.png"), 0),
    (("download", "JOB", "-o", "größer-🔴.png", "--json"), 0),
    (("amend", "JOB", "--finish-now"), 0),
    (("cancel", "JOB", "--json"), 0),
    (("estimate", PROMPT), 0),
    (("estimate", PROMPT, "--json"), 0),
    (("fleet",), 0),
    (("fleet", "--json"), 0),
    (("models",), 0),
    (("generate", PROMPT, "--model", "größer-🔴"), 2),
    (("generate", PROMPT, "--model", "größer-🔴", "--json"), 2),
    (("watch", UNKNOWN, "--json"), 2),
    (("simulate", "--mix", "größer-🔴:1=1", "--jobs", "3"), 0),
    (("plan", "--mix", "größer-🔴:1=1", "--jobs", "3", "--slo", "größer-🔴 p99 < 100s", "--json"), 0),
    (("token", "new", "--tenant", "a", "--name", "größer", "--file", "tokens.toml", "--json"), 0),
    (("generate", "--help"), 0),
    (("simulate", "--help"), 0),
    (("plan", "--help"), 0),
    (("up", "--help"), 0),
    (("generate", b"no text: \xff"), 2),
    (("generate", "a", "--model", b"\xff", "--json"), 2),
    (("generate", "a", "--set", 'a="\\ud800"'), 2),
    (("models", "--router", b"\xff"), 2),
    (("models", "--token", b"\xff"), 2),
    (("download", "JOB", "-o", b"no-text-\xff.png", "--json"), 0),
]


@pytest.fixture(scope="module")
def job(suite: RunningSuite, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a job that has been made, with a prompt that few encodings have."""
    folder = tmp_path_factory.mktemp("job")
    made = command.run_with("generate", PROMPT, *QUICK, "--json", state_dir=suite.state_dir, folder=folder)
    assert made.returncode == 0, made.stderr
    job_id: str = json.loads(made.stdout)["job"]["job_id"]
    return job_id


def arguments_of(words: tuple[str | bytes, ...], job: str) -> list[str | bytes]:
    return [job if word == "JOB" else word for word in words]


# What one Western encoding lacks, another lacks too.
CASES = [
    pytest.param(encoding, words, code, id=f"{encoding}-{' '.join(map(str, words[:2]))[:30]}")
    for encoding in ENCODINGS
    for words, code in (COMMANDS[:4] if encoding == "latin-1" else COMMANDS)
]


@pytest.mark.parametrize(("encoding", "words", "code"), CASES)
def test_no_command_fails_for_an_encoding(
    suite: RunningSuite, job: str, tmp_path: Path, encoding: str, words: tuple[str | bytes, ...], code: int
) -> None:
    done = command.run_with(
        *arguments_of(words, job), state_dir=suite.state_dir, folder=tmp_path, environment=ENCODINGS[encoding]
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == code, done.stderr
    assert b"\x1b" not in done.stdout + done.stderr
    if "--json" in words:
        told = [json.loads(line) for line in done.stdout.decode("ascii").splitlines()]
        assert told or b"usage:" in done.stderr
        if words[0] in ("generate", "submit") and code == 0:
            assert (told[0].get("job") or told[0])["spec"]["prompt"] == PROMPT
    elif words[0] == "jobs":
        assert "\\u001b[31m" in done.stdout.decode("cp1252" if encoding == "cp1252" else "latin-1")


@pytest.mark.parametrize("redirect", REDIRECTS)
@pytest.mark.parametrize(
    ("words", "code"),
    [*COMMANDS[:4], (("watch", UNKNOWN, "--json"), 2), (("generate", "--help"), 0), (("generate", b"\xff"), 2)],
    ids=lambda value: repr(value[:2])[:50] if isinstance(value, tuple) else "",
)
def test_a_stream_that_nobody_reads_is_no_error(
    suite: RunningSuite, job: str, tmp_path: Path, words: tuple[str | bytes, ...], code: int, redirect: str
) -> None:
    done = command.run_with(
        *arguments_of(words, job), state_dir=suite.state_dir, folder=tmp_path, redirect=REDIRECTS[redirect]
    )
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    # What was to be told to nobody may have been left out.
    assert done.returncode in ({code, 0} if redirect == "stdout left" else {code}), done.stderr
    if words[0] == "generate" and "-o" in words:
        assert [path.name for path in tmp_path.iterdir()] == ["größer-🔴.png"]


@pytest.mark.parametrize("words", [("jobs",), ("jobs", "--json"), ("watch", UNKNOWN, "--json")])
def test_a_full_disk_is_said_in_one_line(
    suite: RunningSuite, job: str, tmp_path: Path, words: tuple[str | bytes, ...]
) -> None:
    done = command.run_with(*words, state_dir=suite.state_dir, folder=tmp_path, redirect="> /dev/full")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == b"triptych: standard output cannot be written: No space left on device"
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("columns", [1, 12, 80])
@pytest.mark.parametrize(
    "environment",
    [
        {"TERM": "dumb"},
        {"TERM": "xterm"},
        {"TERM": "xterm", "PYTHONIOENCODING": "cp1252"},
        {"TERM": "xterm", **C_LOCALE},
    ],
    ids=["dumb", "xterm", "cp1252", "C locale"],
)
def test_bars_are_drawn_on_any_terminal(
    suite: RunningSuite, tmp_path: Path, environment: dict[str, str], columns: int
) -> None:
    inside, outside = pty.openpty()
    termios.tcsetwinsize(outside, (24, columns))
    drawn: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(inside, 65536):
                drawn.append(data)
        except OSError:  # nobody has the terminal open any longer
            pass

    reading = threading.Thread(target=read)
    reading.start()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRIPTYCH_")}
    done = subprocess.run(
        [sys.executable, "-m", "triptych.cli", "generate", PROMPT, *QUICK, "-o", "a.png"],
        stdout=outside,
        stderr=outside,
        cwd=tmp_path,
        env={**kept, "TRIPTYCH_STATE": str(suite.state_dir), **environment},
        timeout=command.WAIT_S,
        check=False,
    )
    os.close(outside)
    reading.join()
    os.close(inside)
    shown = b"".join(drawn)
    assert b"Traceback" not in shown
    assert done.returncode == 0, shown
    assert (tmp_path / "a.png").exists()
    if columns == 80:
        assert b"\\u" not in shown  # the bar and its spinner are of characters that the terminal has
