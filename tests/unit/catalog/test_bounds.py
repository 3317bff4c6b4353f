"""A catalog allows its models' jobs no more than any job may have."""

import pytest

from triptych.catalog import Limits
from triptych.limits import MAX_FRAMES, MAX_OUTPUTS, MAX_SIDE, MAX_STEPS


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("max_side", MAX_SIDE),
        ("max_step_count", MAX_STEPS),
        ("max_frame_count", MAX_FRAMES),
        ("max_output_count", MAX_OUTPUTS),
    ],
)
def test_a_limit_beyond_what_any_job_may_have_is_refused_by_name(name: str, most: int) -> None:
    assert getattr(Limits(**{name: most}), name) == most
    for value in (0, most + 1):
        # The least side is above a largest of 0.
        with pytest.raises(ValueError, match=name):
            Limits(**{name: value})
