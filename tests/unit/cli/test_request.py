"""From the command line to a job."""

import argparse
import math
from pathlib import Path

import pytest
from PIL import Image

from triptych.cli.arguments import build_parser
from triptych.cli.failures import Failure
from triptych.cli.request import build_spec
from triptych.client import Client
from triptych.errors import Reason, TriptychError
from triptych.limits import MAX_ATTACHMENT_BYTES
from triptych.v1 import job_pb2


def parsed(*arguments: str) -> argparse.Namespace:
    return build_parser().parse_args(["generate", "a star", "--model", "shapes", *arguments])


async def spec_of(*arguments: str) -> job_pb2.JobSpec:
    args = parsed(*arguments)
    return await build_spec(args, Client("unused:1"), args.output)


async def test_what_is_left_out_stays_unset() -> None:
    assert await spec_of() == job_pb2.JobSpec(model="shapes", prompt="a star")


async def test_every_option_reaches_its_field() -> None:
    spec = await spec_of(
        *("--negative", "a circle", "--steps", "5", "--seed", "0", "--guidance", "2.5", "--size", "96x64"),
        *("--count", "2", "--frames", "9", "--fps", "8", "--format", "webp", "--priority", "batch"),
    )
    assert spec.negative_prompt == "a circle"
    assert (spec.step_count, spec.guidance, spec.width, spec.height) == (5, 2.5, 96, 64)
    assert spec.HasField("seed")
    assert spec.seed == 0
    assert (spec.output_count, spec.frame_count, spec.fps) == (2, 9, 8.0)
    assert spec.output_format == job_pb2.MEDIA_FORMAT_WEBP
    assert spec.priority_class == job_pb2.PRIORITY_CLASS_BATCH


@pytest.mark.parametrize("option", ["--negative-prompt", "--negative"])
async def test_an_empty_negative_prompt_is_set(option: str) -> None:
    spec = await spec_of(option, "")
    assert spec.HasField("negative_prompt")
    assert spec.negative_prompt == ""
    assert not (await spec_of()).HasField("negative_prompt")


async def test_no_guidance_is_not_the_default_guidance() -> None:
    spec = await spec_of("--guidance", "0")
    assert spec.HasField("guidance")
    assert spec.guidance == 0


async def test_an_empty_prompt_is_set() -> None:
    spec = await build_spec(build_parser().parse_args(["generate", "", "--model", "shapes"]), Client("unused:1"))
    assert spec.HasField("prompt")
    assert spec.prompt == ""


async def test_a_deadline_travels_as_a_duration_so_that_no_clock_need_be_right() -> None:
    for text, seconds in (("500ms", 0.5), ("30s", 30.0), ("2.5m", 150.0), ("1h", 3600.0)):
        spec = await spec_of("--deadline", text)
        assert spec.finish_within.ToNanoseconds() == seconds * 1e9
        assert not spec.HasField("deadline")


@pytest.mark.parametrize("text", ["30", "0s", "-1s", "2d", "1e3s", "s", "1.s", "9000h", "1m30s", "٣s"])
def test_what_is_no_time_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parsed(f"--deadline={text}")
    assert "is not a time such as 500ms, 30s, 2m or 1h" in capsys.readouterr().err


async def test_set_takes_json_and_else_text() -> None:
    spec = await spec_of(
        *("--set", "strength=0.6", "--set", "mode=soft", "--set", "flags=[true, null]", "--set", "odd=NaN")
    )
    assert spec.extra["strength"] == pytest.approx(0.6)
    assert spec.extra["mode"] == "soft"
    assert list(spec.extra["flags"]) == [True, None]
    assert spec.extra["odd"] == "NaN"
    assert not math.isnan(spec.extra["strength"])


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("a.png", job_pb2.MEDIA_FORMAT_PNG),
        ("a.JPG", job_pb2.MEDIA_FORMAT_JPEG),
        ("a.mp4", job_pb2.MEDIA_FORMAT_MP4),
        ("a", job_pb2.MEDIA_FORMAT_UNSPECIFIED),
    ],
)
async def test_the_format_follows_the_files_ending(output: str, expected: job_pb2.MediaFormat.ValueType) -> None:
    assert (await spec_of("-o", output)).output_format == expected


async def test_an_ending_that_is_no_format_is_refused() -> None:
    with pytest.raises(Failure, match="no format is called 'xyz'"):
        await spec_of("-o", "a.xyz")


@pytest.mark.parametrize("name", ["mask.png", "mask.jpg", "mask", "mask.txt"])
@pytest.mark.parametrize(("kind", "media_type"), [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp")])
async def test_an_image_is_attached_with_its_role_and_what_it_is(
    tmp_path: Path, name: str, kind: str, media_type: str
) -> None:
    """Whatever the file is called."""
    Image.new("L", (8, 8)).save(tmp_path / name, kind)
    spec = await spec_of("--mask", str(tmp_path / name))
    data = (tmp_path / name).read_bytes()
    assert list(spec.attachments) == [
        job_pb2.Attachment(role=job_pb2.ATTACHMENT_ROLE_MASK, media_type=media_type, data=data)
    ]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "No such file"),
        (b"no image", "is text, not PNG, JPEG or WebP: convert it"),
        (b"GIF89a", "is GIF, not PNG, JPEG or WebP: convert it"),
        (b"", "is empty"),
        (b"\x89PNG\r\n\x1a\n" + bytes(MAX_ATTACHMENT_BYTES), "larger than 3 MiB"),
    ],
    ids=["absent", "text", "GIF", "empty", "too large"],
)
async def test_a_file_that_cannot_be_attached_is_bad_input(tmp_path: Path, data: bytes | None, why: str) -> None:
    path = tmp_path / "image.png"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(TriptychError) as caught:
        await spec_of("--image", str(path))
    assert caught.value.reason is Reason.INVALID_FIELD
    [violation] = caught.value.violations
    assert violation.description.startswith(f"{path}: {why}")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--steps", "0"),
        ("--steps", "many"),
        ("--steps", "-1"),
        ("--seed", str(2**63)),
        ("--size", "96"),
        ("--size", "96x"),
        ("--set", "strength"),
        ("--format", "gif"),
    ],
)
def test_bad_options_end_with_status_2_and_name_the_option(
    arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*arguments)
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err
