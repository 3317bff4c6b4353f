"""Each command against a whole suite."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.integration.cli import command
from tests.suite import RunningSuite
from triptych.cli.__main__ import main

Run = Callable[..., tuple[int, str]]
PROMPT = "a large red circle in the center on a white background"
QUICK = ("--steps", "2", "--seed", "5")


@pytest.fixture
def run(
    suite: RunningSuite,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Run:
    """Runs a command beside the shared suite, in an empty folder: exit code and standard output."""
    monkeypatch.setenv("TRIPTYCH_STATE", str(suite.state_dir))
    monkeypatch.delenv("TRIPTYCH_ROUTER", raising=False)
    monkeypatch.chdir(tmp_path)

    def run_command(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(arguments)
        return code, capsys.readouterr().out

    return run_command


@pytest.fixture
def job(run: Run) -> str:
    """The id of a job that has been made."""
    code, out = run("generate", PROMPT, *QUICK, "--json")
    assert code == 0
    job_id: str = json.loads(out)["job"]["job_id"]
    return job_id


def test_generate_saves_a_picture(run: Run, tmp_path: Path) -> None:
    assert run("generate", PROMPT, *QUICK, "-o", "one.png") == (0, "one.png\n")
    with Image.open(tmp_path / "one.png") as picture:
        assert (picture.format, picture.size) == ("PNG", (96, 96))


def test_a_text_that_is_cut_is_warned_of_and_only_counted_in_the_logs(suite: RunningSuite, tmp_path: Path) -> None:
    """The embedded model takes 32 tokens."""
    prompt = " ".join(["zebra"] * 40)
    said = "warning: prompt is too long: tokenizer reads 32 of its "
    for arguments in (
        ("generate", prompt, *QUICK, "-o", str(tmp_path / "cut.png")),
        ("submit", prompt, *QUICK),
        ("estimate", prompt),
    ):
        ended = command.run(*arguments, state_dir=suite.state_dir)
        assert ended.returncode == 0
        assert said in ended.stderr
        assert "warning" not in ended.stdout
        if arguments[0] == "submit":
            watched = command.run("watch", ended.stdout.strip(), state_dir=suite.state_dir)
            assert said in watched.stderr
    ended = command.run("generate", PROMPT, *QUICK, "-o", str(tmp_path / "whole.png"), state_dir=suite.state_dir)
    assert "warning" not in ended.stderr
    logs = "".join(path.read_text() for path in (suite.state_dir / "logs").iterdir())
    assert "text_cut" in logs
    assert "zebra" not in logs
    assert PROMPT not in logs


def test_an_empty_prompt_and_an_empty_negative_prompt(run: Run) -> None:
    jobs = []
    for texts in (("",), ("", "--negative-prompt", "")):
        code, out = run("generate", *texts, *QUICK, "--json")
        assert code == 0
        jobs.append(json.loads(out)["job"]["spec"])
    assert [spec["prompt"] for spec in jobs] == ["", ""]
    assert ["negative_prompt" in spec for spec in jobs] == [False, True]


def test_amend_a_running_job_then_a_finished_one(run: Run) -> None:
    code, out = run("submit", PROMPT, "--steps", "100", "--seed", "5", "--count", "4")
    assert code == 0
    job_id = out.strip()
    code, out = run("amend", job_id, "--steps", "2")
    assert (code, out.startswith(f"{job_id}: 2 steps instead of 100, ")) == (0, True)
    assert run("watch", job_id)[0] == 0
    assert run("amend", job_id, "--finish-now") == (0, f"{job_id}: succeeded, with 2 steps\n")
    code, out = run("amend", job_id, "--more", "3")
    refined, _, words = out.partition(": ")
    assert (code, words.startswith(f"goes on from {job_id}, from step 2 to 5, ")) == (0, True)
    assert run("watch", refined)[0] == 0
    with pytest.raises(SystemExit):
        run("amend", job_id, "--steps", "3", "--more", "1")


def test_previews_lie_beside_the_picture_or_in_a_folder(run: Run, tmp_path: Path) -> None:
    often = ("--steps", "100", "--seed", "5", "--preview-every-steps", "2", "--preview-size", "64")
    assert run("generate", PROMPT, *often, "-o", "one.png") == (0, "one.png\n")
    assert {path.name for path in tmp_path.iterdir()} == {"one.png", "one.preview.webp"}
    code, out = run("generate", PROMPT, *often, "-o", "two.png", "--preview-dir", "seen", "--json")
    assert (code, (tmp_path / "two.png").read_bytes()) == (0, (tmp_path / "one.png").read_bytes())
    seen = sorted((tmp_path / "seen").iterdir())
    job_id = json.loads(out)["job"]["job_id"]
    steps = [int(path.stem.removeprefix(f"{job_id}-0-")) for path in seen]
    assert steps
    assert all(step % 2 == 0 and step < 100 for step in steps)
    assert not (tmp_path / "two.preview.webp").exists()
    for path in (*seen, tmp_path / "one.preview.webp"):
        with Image.open(path) as picture:
            assert (picture.format, picture.size) == ("WEBP", (64, 64))


def test_watch_keeps_previews_where_it_is_told(run: Run, tmp_path: Path) -> None:
    _, out = run("submit", PROMPT, "--steps", "100", "--count", "2", "--preview-every", "0.1")
    job_id = out.strip()
    assert run("watch", job_id, "--preview-dir", "seen")[0] == 0
    seen = [path.name for path in (tmp_path / "seen").iterdir()]
    assert seen
    assert all(name.startswith(f"{job_id}-") and name.endswith(".webp") for name in seen)


def test_generate_saves_several_in_the_wanted_format(run: Run, tmp_path: Path) -> None:
    code, out = run("generate", PROMPT, *QUICK, "--count", "2", "--size", "64x80", "-o", "two.webp", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["files"] == ["two-0.webp", "two-1.webp"]
    assert [output["seed"] for output in told["job"]["outputs"]] == ["5", "6"]
    for name in told["files"]:
        with Image.open(tmp_path / name) as picture:
            assert (picture.format, picture.size) == ("WEBP", (64, 80))


def test_the_same_seed_makes_the_same_file(run: Run, tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        run("generate", PROMPT, *QUICK, "-o", name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_submit_watch_and_download(run: Run, tmp_path: Path) -> None:
    code, out = run("submit", PROMPT, *QUICK)
    assert code == 0
    job_id = out.strip()
    code, out = run("watch", job_id, "--json")
    assert code == 0
    events = [json.loads(line) for line in out.splitlines()]
    assert [int(event["sequence"]) for event in events] == list(range(1, len(events) + 1))
    assert "queued" in events[0]
    assert "succeeded" in events[-1]
    assert run("download", job_id, "-o", "got.png") == (0, "got.png\n")
    with Image.open(tmp_path / "got.png") as picture:
        assert picture.size == (96, 96)


def test_a_repeated_submit_is_one_job(run: Run) -> None:
    submit = ("submit", PROMPT, *QUICK, "--request-id", "once-more")
    first, second = run(*submit), run(*submit)
    assert first == second
    code, _ = run("submit", "something else", "--request-id", "once-more")
    assert code == 2


def test_jobs_lists_the_newest_first(run: Run, job: str) -> None:
    code, out = run("jobs", "--json", "--limit", "1")
    assert code == 0
    listed: list[dict[str, Any]] = json.loads(out)
    assert [(entry["job_id"], entry["state"]) for entry in listed] == [(job, "JOB_STATE_SUCCEEDED")]
    _, table = run("jobs", "--state", "succeeded")
    assert table.splitlines()[1].startswith(job)


def test_cancel_stops_a_job_and_leaves_an_ended_one(run: Run, job: str) -> None:
    _, long_job = run("submit", PROMPT, "--steps", "100", "--count", "4")
    code, out = run("cancel", long_job.strip())
    assert (code, out) == (0, f"{long_job.strip()}: cancelled\n")
    assert run("cancel", job) == (0, f"{job}: succeeded\n")
    code, out = run("watch", long_job.strip(), "--json")
    assert code == 1
    assert "cancelled" in json.loads(out.splitlines()[-1])


def test_estimate_prices_each_stage(run: Run) -> None:
    code, out = run("estimate", PROMPT, "--steps", "10", "--json")
    assert code == 0
    told = json.loads(out)
    assert told["verdict"]["admitted"]
    assert told["estimate"]["forward_count"] == 20  # with guidance, two a step
    _, text = run("estimate", PROMPT)
    assert [line.split()[0] for line in text.splitlines()] == [
        *("encode", "denoise", "decode", "total", "size", "pool", "start", "verdict")
    ]
    assert "size     96x96" in text.splitlines()


def test_fleet_and_models(run: Run, suite: RunningSuite, job: str) -> None:
    code, out = run("fleet", "--json")
    assert code == 0
    fleet = json.loads(out)
    workers = {worker["worker_id"]: worker for worker in fleet["workers"]}
    assert set(workers) == {"encoder-0", "denoiser-0", "decoder-0"}
    assert workers["denoiser-0"]["address"] == suite.worker_address("denoiser-0")
    assert sum(pool["worker_count"] for pool in fleet["pools"]) == 1
    code, out = run("models", "--json")
    assert code == 0
    assert [model["name"] for model in json.loads(out)] == ["shapes"]
    text = run("fleet")[1]
    assert "denoiser-0" in text
    assert {error["stage"] for error in fleet["estimate_errors"]} >= {"STAGE_DENOISE", "STAGE_DECODE"}
    assert "MEDIAN ERROR" in text
    assert "shapes" in run("models")[1]


def test_a_watched_fleet_shows_decisions_as_they_are_made(run: Run, suite: RunningSuite) -> None:
    watching = command.start("fleet", "--watch", "--interval", "0.1", state_dir=suite.state_dir)
    assert watching.stdout is not None
    try:
        assert next(watching.stdout).startswith("pool ")  # a pool's state, then what is decided
        code, out = run("submit", PROMPT, *QUICK)
        assert code == 0
        job_id, told = out.strip(), []
        while not told or "finished" not in told[-1]:
            line = next(watching.stdout)
            told += [line] if job_id in line else []
        kinds = [line.split()[1] for line in told]
        assert kinds == ["admitted", "started", "started", "started", "finished"]
        assert "denoiser-0" in told[2]
    finally:
        command.press_ctrl_c(watching)
        assert watching.wait(command.WAIT_S) == 130


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("generate", PROMPT, "--size", "7x7"), "INVALID_FIELD"),
        (("generate", PROMPT, "--model", "absent"), "MODEL_UNKNOWN"),
        (("generate", PROMPT, "--set", "no_such_input=1"), "INVALID_FIELD"),
        (("generate", PROMPT, "--preview-every", "0.01"), "INVALID_FIELD"),
        (("submit", PROMPT, "--preview-every-steps", "1", "--preview-size", "8"), "INVALID_FIELD"),
        (("watch", "01234567890123456789012345"), "JOB_UNKNOWN"),
        (("cancel", "01234567890123456789012345"), "JOB_UNKNOWN"),
    ],
)
def test_bad_input_is_status_2_with_its_reason(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    code, out = run(*arguments, "--json")
    assert code == 2
    assert json.loads(out)["error"]["reason"] == reason


def test_ctrl_c_cancels_the_job_and_says_so(suite: RunningSuite, run: Run) -> None:
    with command.start("generate", PROMPT, "--steps", "100", "--count", "4", state_dir=suite.state_dir) as process:
        job_id = command.read_until(process, ["denoising 1/"]).partition(":")[0]
        command.press_ctrl_c(process)
        _, told = process.communicate()
    assert process.returncode == 1
    assert f"job {job_id} is cancelled" in told
    assert json.loads(run("jobs", "--state", "cancelled", "--json")[1])[0]["job_id"] == job_id
