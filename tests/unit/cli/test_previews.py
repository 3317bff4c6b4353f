"""Previews on the command line: which options make which policy, and which files are written."""

import argparse
from pathlib import Path

import pytest

from triptych.cli.arguments import build_parser
from triptych.cli.failures import EXIT_BAD_INPUT, Failure
from triptych.cli.previews import PreviewFiles, preview_policy
from triptych.v1.job_pb2 import Preview, PreviewPolicy


def parsed(*arguments: str, command: str = "generate") -> argparse.Namespace:
    return build_parser().parse_args([command, "a star", *arguments])


@pytest.mark.parametrize("command", ["generate", "submit"])
def test_each_way_to_ask(command: str) -> None:
    assert preview_policy(parsed(command=command)) is None
    assert preview_policy(parsed("--preview-every-steps", "5", command=command)) == PreviewPolicy(every_steps=5)
    timed = preview_policy(parsed("--preview-every", "1.5", "--preview-size", "64", command=command))
    assert timed is not None
    assert (timed.WhichOneof("interval"), timed.every_time.ToNanoseconds(), timed.max_side) == (
        *("every_time", 1_500_000_000, 64),
    )


@pytest.mark.parametrize("options", [("--preview-size", "64"), ("--preview-dir", "there")])
def test_how_often_has_to_be_said(options: tuple[str, str]) -> None:
    with pytest.raises(Failure, match="how often") as failed:
        preview_policy(parsed(*options))
    assert failed.value.exit_code == EXIT_BAD_INPUT


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e10"])
def test_what_is_no_number_of_seconds_is_refused(seconds: str) -> None:
    with pytest.raises(Failure, match="is no number of seconds"):
        preview_policy(parsed(f"--preview-every={seconds}"))


@pytest.mark.parametrize(
    "options",
    [
        ("--preview-every-steps", "0"),
        ("--preview-every-steps", "1.5"),
        ("--preview-every", "soon"),
        ("--preview-size", "0"),
        ("--preview-every", "1", "--preview-every-steps", "1"),
    ],
)
def test_what_the_parser_refuses(options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(*options)
    assert options[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output", "output_count", "expected"),
    [
        ("one.png", 1, "one.preview.webp"),
        ("two.png", 2, "two-1.preview.webp"),
        ("folder", 1, "folder/job.preview.webp"),
        (None, 1, "job.preview.webp"),
    ],
)
def test_the_newest_lies_beside_the_output(
    output: str | None,
    output_count: int,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    files = PreviewFiles("job", output_count, None, Path(output) if output is not None else None)
    for step in (1, 2):
        files.save(Preview(output_index=output_count - 1, step=step, data=bytes([step])))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / expected]
    assert (tmp_path / expected).read_bytes() == b"\x02"


def test_a_folder_keeps_all(tmp_path: Path) -> None:
    files = PreviewFiles("job", 2, tmp_path / "new", tmp_path / "one.png")
    for output_index, step in ((0, 1), (1, 1), (0, 12)):
        files.save(Preview(output_index=output_index, step=step))
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["job-0-0001.webp", "job-0-0012.webp", "job-1-0001.webp"]


def test_a_folder_that_cannot_be_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        PreviewFiles("job", 1, tmp_path / "file").save(Preview())
