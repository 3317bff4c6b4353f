"""A preview policy: what it may be, and how what is wrong is named."""

import pytest
from google.protobuf.duration_pb2 import Duration

from triptych.previews import check_policy, interval_s, latents_subject, made_subject
from triptych.v1.job_pb2 import PreviewPolicy


def every(seconds: int, nanos: int = 0) -> PreviewPolicy:
    return PreviewPolicy(every_time=Duration(seconds=seconds, nanos=nanos))


@pytest.mark.parametrize(
    "policy", [PreviewPolicy(every_steps=1), PreviewPolicy(every_steps=9, max_side=1024), every(0, 10**8), every(3600)]
)
def test_what_may_be(policy: PreviewPolicy) -> None:
    assert check_policy(policy) == []


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (PreviewPolicy(), "spec.preview"),
        (PreviewPolicy(every_steps=0), "spec.preview.every_steps"),
        (every(0, 10**8 - 1), "spec.preview.every_time"),
        (every(3601), "spec.preview.every_time"),
        (every(-1), "spec.preview.every_time"),
        (every(1, 2 * 10**9), "spec.preview.every_time"),
        (PreviewPolicy(every_steps=1, max_side=31), "spec.preview.max_side"),
        (PreviewPolicy(every_steps=1, max_side=1025), "spec.preview.max_side"),
    ],
)
def test_what_is_wrong_is_named(policy: PreviewPolicy, field: str) -> None:
    assert [violation.field for violation in check_policy(policy)] == [field]


def test_all_that_is_wrong_is_named() -> None:
    assert len(check_policy(PreviewPolicy(every_steps=0, max_side=1))) == 2


def test_intervals_in_seconds() -> None:
    assert interval_s(every(1, 5 * 10**8)) == 1.5


@pytest.mark.parametrize("text", ["", "a.b", "*", ">", "a b", "x" * 65])
def test_subjects_are_made_of_plain_words(text: str) -> None:
    for subject in (latents_subject, made_subject):
        assert subject("a-b_C9").endswith(".a-b_C9")
        with pytest.raises(ValueError, match="cannot be part of a subject"):
            subject(text)
