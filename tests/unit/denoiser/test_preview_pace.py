"""When previews of an output are due, and which of them come too soon."""

from itertools import pairwise

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from services.denoiser.preview_pace import PreviewPace
from triptych.v1.job_pb2 import PreviewPolicy

SPACING_S = 0.1


def begun(policy: PreviewPolicy, times_s: list[float], spacing_s: float = SPACING_S) -> tuple[list[int], int]:
    """The steps after which one is begun if steps end at these times, and how many are left out."""
    pace = PreviewPace(policy, spacing_s, 0.0)
    steps, dropped = [], 0
    for step, now_s in enumerate(times_s, start=1):
        if not pace.due(step, now_s):
            continue
        if pace.too_soon(now_s):
            dropped += 1
        else:
            pace.begin(now_s)
            steps.append(step)
    return steps, dropped


def test_slow_steps_are_all_shown() -> None:
    assert begun(PreviewPolicy(every_steps=1), [0.4, 0.8, 1.2]) == ([1, 2, 3], 0)
    assert begun(PreviewPolicy(every_steps=2), [0.4, 0.8, 1.2, 1.6]) == ([2, 4], 0)


def test_of_quick_steps_the_first_and_then_one_in_a_while() -> None:
    steps = [0.012 * step for step in range(1, 101)]
    assert begun(PreviewPolicy(every_steps=1), steps) == (list(range(1, 101, 9)), 88)
    assert begun(PreviewPolicy(every_steps=1), steps, spacing_s=0.0) == (list(range(1, 101)), 0)


@pytest.mark.parametrize("interval_ms", [100, 250])
def test_by_time_the_first_comes_after_the_first_interval(interval_ms: int) -> None:
    policy = PreviewPolicy(every_time=Duration(nanos=interval_ms * 10**6))
    steps, dropped = begun(policy, [0.025 * step for step in range(1, 41)])
    assert steps[0] >= interval_ms / 25
    assert dropped == 0


@given(st.integers(1, 9), st.lists(st.floats(0.001, 0.5), max_size=60), st.floats(0.0, 1.0))
def test_never_closer_than_the_spacing(every_steps: int, gaps_s: list[float], spacing_s: float) -> None:
    times_s = [sum(gaps_s[: index + 1]) for index in range(len(gaps_s))]
    steps, dropped = begun(PreviewPolicy(every_steps=every_steps), times_s, spacing_s)
    shown_s = [times_s[step - 1] for step in steps]
    assert all(later - earlier >= spacing_s for earlier, later in pairwise(shown_s))
    assert len(steps) + dropped == len(gaps_s) // every_steps
