"""Tokens from the command line, and a suite that asks for them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.cli import command
from tests.suite import RunningSuite, running_suite
from triptych.cli.__main__ import main
from triptych.tokens import token_hash


def test_a_token_is_shown_once_and_its_hash_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tokens.toml"
    shown = []
    for tenant in ("acme", "rival"):
        assert main(["token", "new", "--tenant", tenant, "--file", str(path), "--json"]) == 0
        shown.append(json.loads(capsys.readouterr().out)["token"])
    text = path.read_text()
    assert all(token_hash(token) in text and token not in text for token in shown)
    assert path.stat().st_mode & 0o77 == 0
    assert main(["token", "new", "--tenant", "a b"]) == 2
    assert main(["token", "new", "--tenant", "a", "--file", str(tmp_path / "no" / "file")]) == 2


def test_a_suite_that_asks_for_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with running_suite(tmp_path / "state", auth=True) as suite:
        tokens = suite.state_dir / "secrets" / "router" / "tokens.toml"
        made = command.run("token", "new", "--tenant", "acme", "--file", str(tokens))
        token = made.stdout.strip()
        run = ("generate", "a large red circle", "--steps", "2", "-o", "one.png", "--router", suite.address)
        refused = command.run(*run, state_dir=tmp_path / "another")
        assert refused.returncode == 2
        assert "TRIPTYCH_TOKEN" in refused.stderr
        # Its owner's client finds the token that the suite made.
        assert command.run("fleet", state_dir=suite.state_dir).returncode == 0
        given = ("--token", token)
        assert command.run(*run, *given, state_dir=tmp_path / "another").returncode == 0
        assert (tmp_path / "one.png").stat().st_size
        jobs = command.run("jobs", "--json", "--router", suite.address, *given, state_dir=tmp_path / "another")
        assert [job["tenant"] for job in json.loads(jobs.stdout)] == ["acme"]
        assert not _shown(suite) & _secrets(suite)
        told = _run_example(suite, token, tmp_path)
        assert ["made for acme" in told, "jobs of: acme" in told, "UNAUTHENTICATED" in told] == [True] * 3, told


def _run_example(suite: RunningSuite, token: str, folder: Path) -> str:
    """As its first line says; what it prints."""
    example = Path(__file__).parents[3] / "examples" / "with_a_token.py"
    done = subprocess.run(
        [sys.executable, str(example), "acme", "made.png"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env={**os.environ, "TRIPTYCH_ROUTER": suite.address, "TRIPTYCH_TOKEN": token},
        check=True,
    )
    return done.stdout


def _secrets(suite: RunningSuite) -> set[str]:
    """Every password and token of the suite."""
    files = (suite.state_dir / "secrets").rglob("*")
    return {path.read_text().strip() for path in files if path.suffix in (".password", ".token")}


def _shown(suite: RunningSuite) -> set[str]:
    """What everyone on the machine can read: the command lines."""
    lines = [Path("/proc", str(suite.pid(name)), "cmdline").read_text() for name in suite.names]
    return {word for line in lines for argument in line.split("\0") for word in argument.split("=")}
