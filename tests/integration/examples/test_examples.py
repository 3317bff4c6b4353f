"""Each example, run as its first line says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suite import RunningSuite

EXAMPLES = Path(__file__).parents[3] / "examples"
CASES = {
    "generate": (["a small red circle", "star.png"], ["star.png: seed"]),
    "submit_and_watch": (["a small red circle", "made"], ["job ", "queued", "made/0.png", "made/1.png", "succeeded"]),
    "amend": (["made"], ["finished early with ", "made/early.png", "goes on from it", "made/refined.png"]),
    "cancel": ([], ["ended with: cancelled"]),
    "estimate": ([], ["taken", "INVALID_FIELD"]),
    "many_at_once": (["made"], ["4.png", "20.png", "40.png"]),
    "previews": (["a small red circle", "made"], ["of 60: made/step-", "the picture: made/picture.png"]),
    "fleet": ([], ["shapes: ", "denoiser-0: denoise, ready"]),
}


# `tests/integration/cli/test_token.py` has the suite for it.
ELSEWHERE = {"with_a_token"}


@pytest.mark.parametrize("name", sorted({path.stem for path in EXAMPLES.glob("*.py")} - ELSEWHERE))
def test_example(suite: RunningSuite, tmp_path: Path, name: str) -> None:
    arguments, told = CASES[name]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "TRIPTYCH_ROUTER": suite.address},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    position = -1
    for words in told:
        position = done.stdout.find(words, position + 1)
        assert position >= 0, f"{words!r} is missing, or too early, in:\n{done.stdout}"
