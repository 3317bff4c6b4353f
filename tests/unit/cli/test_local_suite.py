"""How a suite on this machine is found, and when it is not believed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from triptych.cli.__main__ import main
from triptych.client.local_suite import DEFAULT_ADDRESS, LocalSuite, find_router, is_locked, lock_owner
from triptych.supervisor.state_dir import StateDir, SuiteRunning

SUITE = LocalSuite(pid=os.getpid(), address="127.0.0.1:5", exchange_url="nats://127.0.0.1:6", processes={"router": 7})

HOLD = """
import sys
from pathlib import Path
from triptych.supervisor.state_dir import StateDir
StateDir(Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRIPTYCH_ROUTER", raising=False)
    monkeypatch.setenv("TRIPTYCH_STATE", str(tmp_path))


def test_the_running_suite_is_found(tmp_path: Path) -> None:
    state_dir = StateDir(tmp_path)
    state_dir.acquire()
    SUITE.write(tmp_path)
    assert LocalSuite.read(tmp_path) == SUITE
    assert lock_owner(tmp_path) == os.getpid()
    assert find_router() == "127.0.0.1:5"
    state_dir.release()
    assert LocalSuite.read(tmp_path) is None
    assert find_router() == DEFAULT_ADDRESS


def test_the_environment_goes_before_the_running_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIPTYCH_ROUTER", "router.example:7460")
    assert find_router() == "router.example:7460"


def test_a_second_owner_is_refused(tmp_path: Path) -> None:
    first = StateDir(tmp_path)
    first.acquire()
    SUITE.write(tmp_path)
    with pytest.raises(SuiteRunning) as refused:
        StateDir(tmp_path).acquire()
    assert refused.value.suite == SUITE
    first.release()
    StateDir(tmp_path).acquire()


def test_what_a_killed_supervisor_left_is_not_believed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        SUITE.write(tmp_path)
        assert is_locked(tmp_path)
        owner.kill()
    assert not is_locked(tmp_path)
    assert find_router() == DEFAULT_ADDRESS
    assert main(["down"]) == 0
    assert "was killed" in capsys.readouterr().out
    assert not (tmp_path / "suite.json").exists()


def test_down_without_a_suite_has_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down", "--json"]) == 0
    assert capsys.readouterr().out == '{"stopped": false}\n'
