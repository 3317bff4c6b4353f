"""What a worker refuses of a job whoever calls."""

from math import inf, nan
from typing import Any

import pytest

from services.stage.spec_check import check_spec
from triptych.errors import Reason, TriptychError
from triptych.v1.job_pb2 import Attachment, JobSpec

GOOD: dict[str, Any] = {"step_count": 1, "width": 64, "height": 64, "output_count": 1, "seed": 0}


def test_a_complete_spec_passes() -> None:
    check_spec(JobSpec(**GOOD, attachments=[Attachment(role=1)]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"step_count": 1001}, "spec.step_count"),
        ({"width": 0}, "spec.width"),
        ({"height": 2**32 - 1}, "spec.height"),
        ({"frame_count": 10_001}, "spec.frame_count"),
        ({"fps": 0.0}, "spec.fps"),
        ({"fps": inf}, "spec.fps"),
        ({"fps": nan}, "spec.fps"),
        ({"output_count": 5}, "spec.output_count"),
        ({"seed": 2**64 - 1}, "spec.seed"),
        ({"seed": None}, "spec.seed"),
        ({"output_format": 77}, "spec.output_format"),
        ({"attachments": [Attachment()]}, "spec.attachments[0].role"),
        ({"attachments": [Attachment(role=99)]}, "spec.attachments[0].role"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_used_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(TriptychError) as caught:
        check_spec(JobSpec(**{**GOOD, **fields}))
    assert caught.value.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in caught.value.violations] == [named]
