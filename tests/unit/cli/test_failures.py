"""Errors as words and exit codes."""

import json

import pytest

from triptych.cli.__main__ import main
from triptych.cli.failures import exit_code, report
from triptych.cli.terminal import Terminal
from triptych.errors import Reason, TriptychError, Violation, invalid

NOBODY = "127.0.0.1:9"


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.INVALID_FIELD, 2),
        (Reason.MODEL_UNKNOWN, 2),
        (Reason.JOB_UNKNOWN, 2),
        (Reason.REQUEST_ID_REUSED, 2),
        (Reason.UNREACHABLE, 3),
        (Reason.NO_WORKER, 3),
        (Reason.EXCHANGE_UNAVAILABLE, 3),
        (Reason.OVERLOADED, 4),
        (Reason.TOO_LONG, 4),
        (Reason.DEADLINE_UNREACHABLE, 4),
        (Reason.STAGE_FAILED, 1),
        (Reason.OUT_OF_MEMORY, 1),
        (Reason.INTERNAL, 1),
    ],
)
def test_exit_codes(reason: Reason, code: int) -> None:
    assert exit_code(TriptychError(reason, "words")) == code


def test_a_refusal_has_reason_figures_and_the_time_to_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    error = TriptychError(
        Reason.OVERLOADED, "too much work ahead", metadata={"estimate_s": "4.2", "limit_s": "45"}, retry_after_s=12
    )
    assert report(error, Terminal(as_json=False)) == 4
    told = capsys.readouterr().err
    for words in ("OVERLOADED", "too much work ahead", "estimate_s: 4.2", "limit_s: 45", "try again in 12.0 s"):
        assert words in told


def test_bad_input_names_each_field(capsys: pytest.CaptureFixture[str]) -> None:
    error = invalid(Violation("spec.width", "a multiple of 8"), Violation("spec.prompt", "must not be empty"))
    assert report(error, Terminal(as_json=True)) == 2
    streams = capsys.readouterr()
    assert "spec.width: a multiple of 8" in streams.err
    told = json.loads(streams.out)["error"]
    assert told["reason"] == "INVALID_FIELD"
    assert [violation["field"] for violation in told["violations"]] == ["spec.width", "spec.prompt"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("generate", "a star", "--model", "shapes"),
        ("watch", "some-job"),
        ("download", "some-job"),
        ("fleet",),
    ],
)
def test_without_a_router_a_command_says_how_to_start_one(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--router", NOBODY, "--json"]) == 3
    streams = capsys.readouterr()
    assert f"no router at {NOBODY}; start one: triptych up" in streams.err
    assert json.loads(streams.out)["error"]["reason"] == "UNREACHABLE"
