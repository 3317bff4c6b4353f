"""What a file of each format cannot hold is refused by name at submit; what it just holds is made by the decoder."""

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from services.router.intake.validation import complete_spec
from triptych.catalog import CatalogModel, Limits
from triptych.errors import TriptychError, Violation
from triptych.v1.job_pb2 import JobSpec
from triptych.v1.worker_pb2 import ModelProfile

# As much as a catalog can allow.
LIMITS = Limits(min_side=1, max_side=16_384, max_pixels=2**28, max_frame_count=10_000)
MODELS = {kind: CatalogModel("somewhere", media_kind=kind, limits=LIMITS) for kind in ("image", "video")}
# Of a model that makes images of any size.
ANY_SIZE = ModelProfile(vae_scale_factor=1, patch_size=1, vae_temporal_factor=1)


def violations(kind: str, media_format: str, **fields: Any) -> list[Violation]:
    spec = {"model": "model", "prompt": "x", "outputFormat": f"MEDIA_FORMAT_{media_format}", **fields}
    try:
        complete_spec(ParseDict(spec, JobSpec()), MODELS[kind], ANY_SIZE)
    except TriptychError as error:
        return error.violations
    return []


@pytest.mark.parametrize(
    ("kind", "media_format", "fields", "named", "limit"),
    [
        ("image", "WEBP", {"width": 16_384, "height": 64}, "spec.width", "16383"),
        ("image", "WEBP", {"width": 64, "height": 16_384}, "spec.height", "16383"),
        ("image", "WEBP", {"width": 8_192, "height": 8_193}, "spec.width", "67108864"),
        ("video", "WEBP", {"width": 8_208, "height": 8_192}, "spec.width", "67108864"),
        ("image", "MP4", {}, "spec.output_format", "PNG, JPEG, WEBP"),
        ("video", "JPEG", {}, "spec.output_format", "MP4, PNG, WEBP"),
        ("video", "WEBP", {"width": 16_384, "height": 64}, "spec.width", "16383"),
        ("video", "WEBP", {"fps": 90.5}, "spec.fps", "90"),
        ("video", "WEBP", {"fps": 240}, "spec.fps", "90"),
        ("video", "PNG", {"fps": 240}, "spec.fps", "90"),
        ("video", "MP4", {"fps": 240.5}, "spec.fps", "240"),
        ("video", "MP4", {"width": 65, "height": 64}, "spec.width", "multiple of 2"),
        ("video", "MP4", {"width": 64, "height": 63}, "spec.height", "multiple of 2"),
        ("video", "MP4", {"width": 16_384, "height": 2_192}, "spec.width", "35651584"),
        ("video", "MP4", {"width": 8_192, "height": 4_096, "fps": 128}, "spec.fps", "127"),
    ],
)
def test_what_a_format_cannot_hold(
    kind: str, media_format: str, fields: dict[str, Any], named: str, limit: str
) -> None:
    [violation] = violations(kind, media_format, **fields)
    assert violation.field == named
    assert limit in violation.description


@pytest.mark.parametrize(
    ("kind", "media_format", "fields"),
    [
        ("image", "PNG", {"width": 16_384, "height": 16_384}),
        ("image", "JPEG", {"width": 16_384, "height": 63}),
        ("image", "WEBP", {"width": 8_192, "height": 8_192}),
        ("image", "WEBP", {"width": 63, "height": 16_383}),
        ("video", "WEBP", {"width": 16_383, "height": 63, "fps": 90}),
        ("video", "PNG", {"width": 65, "height": 63, "fps": 90}),
        ("video", "MP4", {"width": 16_384, "height": 2_176, "fps": 24}),
        ("video", "MP4", {"width": 8_192, "height": 4_096, "fps": 127}),
        ("video", "MP4", {"width": 64, "height": 64, "fps": 240}),
    ],
)
def test_what_a_format_just_holds(kind: str, media_format: str, fields: dict[str, Any]) -> None:
    assert violations(kind, media_format, **fields) == []
