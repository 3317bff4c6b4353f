"""`triptych simulate` and `plan`: the same bytes, golden figures, pictures, and words for bad input."""

import json
from pathlib import Path

import pytest
from PIL import Image

from triptych.cli.__main__ import main

DATA = Path(__file__).parents[2] / "scenarios" / "data"
WORKLOAD = ["--workload", str(DATA / "source_workload_0.06.jsonl")]
MIX = ["--mix", "image:1/2=0.8,video:20=0.2", "--rate", "0.5", "--jobs", "80", "--workers", "2"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_the_same_arguments_give_the_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = [*MIX, "--burst-factor", "3", "--estimate-error", "0.5", "--mtbf-seconds", "200", "--json"]
    once, again = run(capsys, "simulate", *drawn, "--seed", "3"), run(capsys, "simulate", *drawn, "--seed", "3")
    assert once == again != run(capsys, "simulate", *drawn, "--seed", "4")


def test_golden_figures(capsys: pytest.CaptureFixture[str]) -> None:
    pools = ["--pool", "image=1", "--pool", "video=3"]
    found = json.loads(run(capsys, "simulate", *WORKLOAD, "--policy", "pools", "--workers", "4", *pools, "--json"))
    assert (
        found["classes"]["image"].items()
        >= {"jobs": 314, "rejected": 0, "p50_wait_s": 0.0, "p99_wait_s": 6.908536162}.items()
    )
    assert found["classes"]["video"]["p99_wait_s"] == 745.437952136
    assert (found["utilisation"], found["goodput"], found["late_share"]) == (0.700935418, 0.9625, 0.0375)
    assert found["lengths"]["60-300 s"] == {
        "jobs": 42,
        "rejected": 0,
        "goodput": 0.666666667,
        "late_share": 0.333333333,
    }
    assert found["fairness"] == 1.0


def test_policies_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "simulate", *MIX, "--compare", "--json"))
    assert [one["policy"] for one in found["runs"]] == [
        "fcfs:max-queued=100",
        "fcfs:max-queued=20",
        "sjf",
        "stretch",
    ]
    text = run(capsys, "simulate", *MIX, "--policy", "fcfs", "--policy", "stretch")
    assert "WAIT P50" in text
    assert text.count("\nvideo") == 2


def test_a_trace_with_what_is_learnt_of_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [
        "gmt_create,predict_type,predict_status,exec_time_seconds,groupId,num_inference_steps,checkpoint_model_version_id"
    ]
    rows += [
        f"2024-01-01 {10 + n // 60}:{n % 60:02}:00,TXT_2_IMG,SUCCEED,{steps},u{n % 4},{steps},m{n % 2}"
        for n, steps in enumerate([60, 20, 20] * 40)
    ]
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(rows))
    found = json.loads(run(capsys, "simulate", "--trace", str(path), "--load", "0.9", "--workers", "2", "--json"))
    errors = found["estimate_errors_s"]
    assert errors["learnt"] < errors["model_mean"]
    assert found["tenants"].keys() == {"u0", "u1", "u2", "u3"}
    assert found["classes"]["txt_2_img"]["jobs"] == 120


def test_pictures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    one, again, png = tmp_path / "1.svg", tmp_path / "2.svg", tmp_path / "3.png"
    for path in (one, again, png):
        run(capsys, "simulate", *MIX, "--policy", "fcfs", "--policy", "stretch", "--plot", str(path))
    assert one.read_bytes() == again.read_bytes()
    assert all(word in one.read_text() for word in ("delay beyond", "a job paused", "denoiser001", "stretch"))
    with Image.open(png) as picture:
        assert picture.width > 800


def test_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "plan", *MIX, "--slo", "image p99 < 4s", "--json"))
    assert found["cards"] == sum(pool["workers"] * pool["cards"] for pool in found["pools"])
    assert found["slos"]["image p99 < 4s"] < 4.0
    assert f"{found['cards']} card" in run(capsys, "plan", *MIX, "--slo", "image p99 < 4s")


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (["simulate", "--workload", "none.jsonl"], "cannot read none.jsonl", 2),
        (["simulate", *MIX, "--policy", "lifo"], "no policy is called 'lifo'", 2),
        (["simulate", *MIX, "--pool", "image=3"], "--workers 2, but the pools have 3", 2),
        (["simulate", *MIX, "--plot", "a.pdf"], "can write .svg and .png only", 2),
        (["simulate", *MIX, "--block-seconds", "-1"], "bad value of block_s", 2),
        (["simulate", *MIX, "--kappa", "-1"], "bad value of kappa", 2),
        (["plan", *MIX, "--slo", "image < 3s"], "is not like", 2),
        (["plan", *MIX, "--slo", "image p99 < 4s", "--group-sizes", "3"], "no group of 3 cards", 2),
        (["plan", *MIX, "--slo", "image p99 < 1s"], "no fleet of up to 64 cards will do", 4),
    ],
)
def test_bad_input_is_said(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str, code: int) -> None:
    assert words in run(capsys, *arguments, code=code)
