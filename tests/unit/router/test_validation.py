"""Every field of a spec: what it may be, what it stands for when left out, and how it is named when it is wrong."""

import io
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from PIL import Image

from services.router.intake.extra import RESERVED_INPUTS
from services.router.intake.validation import complete_spec, too_large, with_deadline
from tests.unit.router.profiles import IMAGE, PROFILE, VIDEO
from triptych.catalog import CatalogModel
from triptych.errors import Reason, TriptychError
from triptych.limits import MAX_SEED
from triptych.v1 import job_pb2
from triptych.v1.job_pb2 import JobSpec


def make(**fields: Any) -> JobSpec:
    return ParseDict({"model": "model", "prompt": "a red circle", **fields}, JobSpec())


def wrong(spec: JobSpec, model: CatalogModel = IMAGE) -> set[str]:
    """The fields that are said to be wrong."""
    try:
        complete_spec(spec, model, PROFILE)
    except TriptychError as error:
        return {violation.field for violation in error.violations if violation.description}
    return set()


def picture(kind: str = "PNG", size: tuple[int, int] = (16, 16)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, "red").save(file, kind)
    return file.getvalue()


def with_picture(role: int = 1, media_type: str = "image/png", data: bytes | None = None) -> JobSpec:
    spec = make()
    spec.attachments.add(
        role=job_pb2.AttachmentRole.ValueType(role), media_type=media_type, data=picture() if data is None else data
    )
    return spec


def test_defaults_come_from_the_catalog() -> None:
    full = complete_spec(make(), IMAGE, PROFILE)
    assert (full.step_count, full.guidance, full.width, full.height) == (20, 4.0, 512, 512)
    assert (full.frame_count, full.output_count) == (1, 1)
    assert not full.HasField("fps")
    assert full.output_format == job_pb2.MEDIA_FORMAT_PNG
    assert full.priority_class == job_pb2.PRIORITY_CLASS_STANDARD
    film = complete_spec(make(), VIDEO, PROFILE)
    assert (film.frame_count, film.fps, film.output_format) == (17, 16.0, job_pb2.MEDIA_FORMAT_MP4)


def test_a_drawn_seed_fits_any_json_reader_and_is_not_reproducible() -> None:
    drawn = {complete_spec(make(), IMAGE, PROFILE).seed for _ in range(50)}
    assert len(drawn) == 50
    assert max(drawn) < 2**53
    assert not complete_spec(make(), IMAGE, PROFILE).reproducible
    assert complete_spec(make(seed=0), IMAGE, PROFILE).reproducible
    assert not complete_spec(make(seed=0, reproducible=False), IMAGE, PROFILE).reproducible
    assert complete_spec(make(reproducible=True), IMAGE, PROFILE).reproducible


def test_the_callers_spec_is_left_alone() -> None:
    spec = make()
    complete_spec(spec, IMAGE, PROFILE)
    assert spec == make()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"prompt": "é" * 51}, "spec.prompt"),
        ({"negative_prompt": "x" * 101}, "spec.negative_prompt"),
        ({"step_count": 0}, "spec.step_count"),
        ({"step_count": 51}, "spec.step_count"),
        ({"output_count": 0}, "spec.output_count"),
        ({"output_count": 5}, "spec.output_count"),
        ({"seed": MAX_SEED + 1}, "spec.seed"),
        ({"seed": 2**64 - 1}, "spec.seed"),
        ({"guidance": 1000.5}, "spec.guidance"),
        ({"guidance": -1001}, "spec.guidance"),
        ({"guidance": "NaN"}, "spec.guidance"),
        ({"guidance": "Infinity"}, "spec.guidance"),
        ({"width": 0}, "spec.width"),
        ({"width": 48}, "spec.width"),
        ({"width": 1040}, "spec.width"),
        ({"width": 520}, "spec.width"),
        ({"height": 513}, "spec.height"),
        ({"height": 2**32 - 1}, "spec.height"),
        ({"width": 1024, "height": 1024}, "spec.width"),
        ({"frame_count": 2}, "spec.frame_count"),
        ({"frame_count": 0}, "spec.frame_count"),
        ({"fps": 16}, "spec.fps"),
        ({"output_format": "MEDIA_FORMAT_MP4"}, "spec.output_format"),
        ({"output_format": 77}, "spec.output_format"),
        ({"priority_class": 77}, "spec.priority_class"),
        ({"adapters": [{"name": "style", "scale": 1}]}, "spec.adapters[0].name"),
    ],
)
def test_images(fields: dict[str, Any], named: str) -> None:
    assert wrong(make(**fields)) == {named}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"frame_count": 0}, "spec.frame_count"),
        ({"frame_count": 82}, "spec.frame_count"),
        ({"frame_count": 16}, "spec.frame_count"),
        ({"fps": 0}, "spec.fps"),
        ({"fps": -1}, "spec.fps"),
        ({"fps": 1e-300}, "spec.fps"),
        ({"fps": "NaN"}, "spec.fps"),
        ({"fps": 1000}, "spec.fps"),
        ({"output_format": "MEDIA_FORMAT_JPEG"}, "spec.output_format"),
    ],
)
def test_videos(fields: dict[str, Any], named: str) -> None:
    assert wrong(make(**fields), VIDEO) == {named}


@pytest.mark.parametrize(
    "fields",
    [
        {"seed": MAX_SEED},
        {"guidance": -1000},
        {"width": 1024, "height": 512},
        {"frame_count": 1},
        {"step_count": 50},
        {"output_count": 4},
        {"prompt": "x" * 100, "negative_prompt": "y" * 100},
        {"prompt": ""},
        {"prompt": " \n"},
        {"prompt": "", "negative_prompt": ""},
        {"output_format": "MEDIA_FORMAT_WEBP"},
        {"extra": {"strength": 0.5, "clip_skip": 2, "use_resolution_binning": True, "mode": "a", "windows": [1, 2]}},
        {"extra": {"clip_skip": None}},
    ],
)
def test_what_is_allowed(fields: dict[str, Any]) -> None:
    assert wrong(make(**fields)) == set()


def test_all_that_is_wrong_is_named_together() -> None:
    assert wrong(JobSpec(width=1, step_count=0)) == {"spec.prompt", "spec.width", "spec.step_count"}
    with pytest.raises(TriptychError) as caught:
        complete_spec(JobSpec(), IMAGE, PROFILE)
    assert caught.value.reason is Reason.INVALID_FIELD


def test_a_prompt_may_be_empty_but_must_be_given_to_a_model_that_takes_one() -> None:
    assert wrong(JobSpec(model="model")) == {"spec.prompt"}
    assert complete_spec(make(prompt=""), IMAGE, PROFILE).HasField("prompt")
    complete_spec(JobSpec(model="model"), IMAGE, type(PROFILE)(vae_scale_factor=8))


def test_zero_and_empty_are_not_the_default() -> None:
    """The catalog's defaults are for what is not set."""
    full = complete_spec(make(guidance=0, seed=0, reproducible=False, negative_prompt=""), IMAGE, PROFILE)
    assert (full.guidance, full.seed, full.reproducible) == (0.0, 0, False)
    assert full.HasField("negative_prompt")
    assert not complete_spec(make(), IMAGE, PROFILE).HasField("negative_prompt")


def test_a_model_without_negative_prompts() -> None:
    profile = type(PROFILE)(vae_scale_factor=8)
    with pytest.raises(TriptychError) as caught:
        complete_spec(make(negative_prompt="blur"), IMAGE, profile)
    assert caught.value.violations[0].field == "spec.negative_prompt"
    # An empty one asks for nothing.
    complete_spec(make(negative_prompt=""), IMAGE, profile)


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        *(({name: 1}, f"spec.extra.{name}") for name in sorted(RESERVED_INPUTS)),
        ({"nothing": 1}, "spec.extra.nothing"),
        ({"strength": "much"}, "spec.extra.strength"),
        ({"strength": [1]}, "spec.extra.strength"),
        ({"clip_skip": 1.5}, "spec.extra.clip_skip"),
        ({"mode": 1}, "spec.extra.mode"),
        ({"use_resolution_binning": 1}, "spec.extra.use_resolution_binning"),
        ({"windows": [[[[[1]]]]]}, "spec.extra.windows"),
        ({"windows": ["x" * 20_000]}, "spec.extra"),
        ({"embeds": [1]}, "spec.extra.embeds"),
        ({"reference": "x"}, "spec.extra.reference"),
        *(({"max_sequence_length": value}, "spec.extra.max_sequence_length") for value in (0, -1, 1.5, 100_000, "x")),
    ],
)
def test_extra(extra: dict[str, Any], named: str) -> None:
    assert wrong(make(extra=extra)) == {named}


@pytest.mark.parametrize(
    "extra", [{"scales": [0.5, 1]}, {"max_sequence_length": 256}, {"max_sequence_length": None}, {"clip_skip": 2}]
)
def test_extra_that_can_be_used(extra: dict[str, Any]) -> None:
    assert wrong(make(extra=extra)) == set()


@pytest.mark.parametrize("strength", [0, -0.5])
def test_a_strength_that_leaves_no_step_is_refused_where_there_is_an_image(strength: float) -> None:
    assert wrong(make(extra={"strength": strength})) == set()
    spec = with_picture()
    spec.extra["strength"] = strength
    assert wrong(spec) == {"spec.extra.strength"}


@pytest.mark.parametrize("number", [nan, inf, -inf])
def test_extra_numbers_are_finite(number: float) -> None:
    spec = make()
    spec.extra.fields["strength"].number_value = number
    assert wrong(spec) == {"spec.extra.strength"}
    nested = make()
    nested.extra.fields["windows"].list_value.values.add().number_value = number
    assert wrong(nested) == {"spec.extra.windows"}


def test_very_deep_extra_is_refused_and_not_walked() -> None:
    spec = make()
    value = spec.extra.fields["windows"]
    for _ in range(90):
        value = value.list_value.values.add()
    value.number_value = 1
    assert wrong(spec) == {"spec.extra.windows"}


@pytest.mark.parametrize(("kind", "media_type"), [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/webp")])
@pytest.mark.parametrize("told", ["", "image/png", "image/gif"])
def test_pictures_are_told_by_their_content(kind: str, media_type: str, told: str) -> None:
    full = complete_spec(with_picture(media_type=told, data=picture(kind)), IMAGE, PROFILE)
    assert full.attachments[0].media_type == media_type


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (with_picture(role=0), "spec.attachments[0].role"),
        (with_picture(role=77), "spec.attachments[0].role"),
        (with_picture(role=3), "spec.attachments[0].role"),
        (with_picture(data=b""), "spec.attachments[0].data"),
        (with_picture(data=b"\x89PNG\r\n\x1a\n"), "spec.attachments[0].data"),
        (with_picture(data=picture()[:20]), "spec.attachments[0].data"),
        (with_picture(data=picture(size=(20_000, 10_000))), "spec.attachments[0].data"),
        (with_picture(data=picture(size=(1, 20_000))), "spec.attachments[0].data"),
        (with_picture(data=b"x" * (3 * 1024 * 1024 + 1)), "spec.attachments"),
        (with_picture(role=2), "spec.attachments"),
    ],
)
def test_pictures_that_cannot_be_used(spec: JobSpec, named: str) -> None:
    assert wrong(spec) == {named}


def test_one_picture_a_role() -> None:
    spec = with_picture()
    spec.attachments.add().CopyFrom(spec.attachments[0])
    assert wrong(spec) == {"spec.attachments[1].role"}
    for _ in range(3):
        spec.attachments.add().CopyFrom(spec.attachments[0])
    assert wrong(spec) == {"spec.attachments"}


def test_an_image_and_its_mask() -> None:
    spec = with_picture()
    spec.attachments.add(role=job_pb2.ATTACHMENT_ROLE_MASK, media_type="image/png", data=picture())
    assert wrong(spec) == set()


@pytest.mark.parametrize(
    ("asked", "image", "made"),
    [
        ({}, (512, 512), (512, 512)),
        ({}, (640, 640), (512, 512)),
        ({}, (1920, 1080), (672, 384)),  # 682.7 × 384
        ({}, (1080, 1920), (384, 672)),
        ({}, (3, 1), (880, 288)),  # 886.8 × 295.6
        ({}, (16_384, 1), (1024, 64)),
        ({}, (1, 16_384), (64, 1024)),
        ({"width": 256}, (1920, 1080), (256, 144)),
        ({"height": 256}, (1920, 1080), (448, 256)),  # 455.1
        ({"width": 256, "height": 256}, (1920, 1080), (256, 256)),
    ],
)
def test_an_image_gives_the_size_that_is_left_open(
    asked: dict[str, int], image: tuple[int, int], made: tuple[int, int]
) -> None:
    spec = with_picture(data=picture(size=image))
    spec.MergeFrom(JobSpec(**asked))
    full = complete_spec(spec, IMAGE, PROFILE)
    assert (full.width, full.height) == made


def test_a_side_that_cannot_be_used_is_named_beside_an_image() -> None:
    for fields, named in (({"width": 0}, "width"), ({"height": 2**32 - 1}, "height"), ({"width": 72}, "width")):
        spec = with_picture()
        spec.MergeFrom(JobSpec(**fields))
        assert wrong(spec) == {f"spec.{named}"}


def test_deadlines() -> None:
    spec = make()
    assert with_deadline(spec, 100.0) == spec
    spec.deadline.FromNanoseconds(100_500_000_000)
    assert with_deadline(spec, 100.0) == spec
    for bad in ((100, 0), (101, -5), (101, 10**9)):
        spec.deadline.seconds, spec.deadline.nanos = bad
        with pytest.raises(TriptychError) as caught:
            with_deadline(spec, 100.0)
        assert caught.value.violations[0].field == "spec.deadline"


def test_a_time_from_now_becomes_a_deadline() -> None:
    spec = make(finish_within="90.5s")
    made = with_deadline(spec, 100.0)
    assert made == make(deadline="1970-01-01T00:03:10.5Z")
    assert spec.HasField("finish_within")
    for seconds, nanos in ((0, 0), (-1, 0), (1, -1), (1, 10**9), (300_000_000_000, 0)):
        spec.finish_within.seconds, spec.finish_within.nanos = seconds, nanos
        with pytest.raises(TriptychError) as caught:
            with_deadline(spec, 100.0)
        assert caught.value.violations[0].field == "spec.finish_within"


def test_a_time_from_now_and_a_deadline_are_one_too_many() -> None:
    with pytest.raises(TriptychError) as caught:
        with_deadline(make(finish_within="90s", deadline="1970-01-01T00:03:10Z"), 100.0)
    assert caught.value.violations[0].field == "spec.finish_within"


def test_huge_specs_are_not_looked_into() -> None:
    assert too_large(make(), 1000) is None
    refusal = too_large(make(prompt="x" * 2000), 1000)
    assert refusal is not None
    assert refusal.violations[0].field == "spec"


def test_the_catalogs_limit_of_outputs_holds() -> None:
    two = replace(IMAGE, limits=replace(IMAGE.limits, max_output_count=2))
    assert wrong(make(output_count=3), two) == {"spec.output_count"}


def test_a_preview_policy_is_checked_and_its_size_filled_in() -> None:
    assert complete_spec(make(preview={"everySteps": 2}), IMAGE, PROFILE).preview.max_side == 256
    assert complete_spec(make(preview={"everySteps": 2, "maxSide": 64}), IMAGE, PROFILE).preview.max_side == 64
    assert not complete_spec(make(), IMAGE, PROFILE).HasField("preview")
    assert wrong(make(preview={})) == {"spec.preview"}
    assert wrong(make(preview={"everyTime": "0.01s", "maxSide": 8})) == {
        "spec.preview.every_time",
        "spec.preview.max_side",
    }
