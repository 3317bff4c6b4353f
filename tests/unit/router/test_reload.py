"""SIGHUP: the settings are read again; bad ones are refused, and those there are stay."""

import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.router.__main__ import reload
from services.router.config import RouterConfig


class Taker:
    """What of a router a reload needs."""

    def __init__(self) -> None:
        self.taken: list[RouterConfig] = []

    def reload(self) -> None:
        """The tokens are another matter."""

    def reconfigure(self, config: RouterConfig) -> None:
        self.taken.append(config)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "router.toml"
    monkeypatch.setattr(sys, "argv", ["router", f"--config={path}"])
    return path


def test_a_good_file_is_taken(file: Path) -> None:
    file.write_text('[scheduler]\nkappa = 3.0\n[[scheduler.pools]]\nname = "all"\n')
    taker = Taker()
    reload(taker)  # type: ignore[arg-type]
    assert [config.scheduler.kappa for config in taker.taken] == [3.0]


@pytest.mark.parametrize("text", ["[scheduler]\nkappa = -1.0\n", "[scheduler]\nkapa = 1.0\n", "not toml"])
def test_a_bad_file_is_logged_and_refused(file: Path, text: str) -> None:
    file.write_text(text)
    taker = Taker()
    with capture_logs() as logs:
        reload(taker)  # type: ignore[arg-type]
    assert taker.taken == []
    assert [entry["event"] for entry in logs] == ["reload_refused"]
    assert logs[0]["error"]
