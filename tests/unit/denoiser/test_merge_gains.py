"""What merging is found to bring: tried a bounded number of times, judged by measurements, looked at again."""

from hypothesis import given
from hypothesis import strategies as st

from services.denoiser.merge_gains import MergeGains

SHAPE = "shape"


def served(gains: MergeGains, seconds: dict[int, float], available: int, calls: int = 60) -> list[int]:
    """The batches of so many calls, each of which takes what `seconds` says."""
    batches = []
    for _ in range(calls):
        batch = gains.batch(SHAPE, available)
        gains.observe(SHAPE, batch, seconds[batch])
        batches.append(batch)
    return batches


def test_alone_is_measured_first_then_larger_batches_as_long_as_they_are_no_worse() -> None:
    gains = MergeGains(4)
    batches = served(gains, {1: 1.0, 2: 1.6, 3: 2.1, 4: 2.4}, available=4)
    assert batches[:12] == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert set(batches[12:]) == {4}


def test_it_is_given_up_after_three_trials_where_it_does_not_pay() -> None:
    gains = MergeGains(8)
    batches = served(gains, {1: 1.0, 2: 2.2}, available=8)
    assert batches.count(2) == 3
    assert set(batches[6:]) == {1}
    assert gains.most(SHAPE) == 1


def test_less_than_a_twentieth_is_no_gain() -> None:
    gains = MergeGains(2)
    assert set(served(gains, {1: 1.0, 2: 1.94}, available=2)[6:]) == {1}


def test_one_slow_measurement_decides_nothing() -> None:
    gains = MergeGains(2)
    for seconds in (1.0, 1.0, 1.0):
        gains.observe(SHAPE, 1, seconds)
    for seconds in (30.0, 1.2, 1.2):
        gains.observe(SHAPE, 2, seconds)
    assert gains.batch(SHAPE, 2) == 2


def test_no_more_are_merged_than_there_are_nor_than_fit() -> None:
    gains = MergeGains(8)
    served(gains, dict.fromkeys(range(1, 9), 1.0), available=8)
    assert gains.batch(SHAPE, 3) == 3
    gains.limit(SHAPE, 2)
    assert gains.batch(SHAPE, 8) == 2
    gains.limit(SHAPE, 1)
    assert gains.most(SHAPE) == 1


def test_what_was_found_is_looked_at_again_ever_more_rarely() -> None:
    gains = MergeGains(2)
    assert served(gains, {1: 1.0, 2: 2.2}, available=2, calls=8_000).count(2) <= 3 * 5
    # The machine has changed.
    assert 2 in served(gains, {1: 1.0, 2: 1.2}, available=2, calls=8_000)
    assert gains.most(SHAPE) == 2


def test_shapes_are_bounded() -> None:
    gains = MergeGains(2)
    gains.check(0)
    for shape in range(1, 400):
        gains.observe(shape, 1, 1.0)
    assert not gains.is_checked(0)
    assert len(gains._shapes) <= 256


@given(
    st.lists(st.floats(0.3, 3.0), min_size=4, max_size=4),
    st.lists(st.floats(0.8, 1.25), min_size=20, max_size=20),
)
def test_it_never_costs_much(relative: list[float], noise: list[float]) -> None:
    """Whatever merging brings, and however measurements scatter: what is settled on is no worse than measured."""
    gains = MergeGains(5)
    seconds = {1: 1.0} | {batch: batch * each for batch, each in zip(range(2, 6), relative, strict=True)}
    spent = samples = 0.0
    for call in range(400):
        batch = gains.batch(SHAPE, 1 + call % 5)
        gains.observe(SHAPE, batch, seconds[batch] * noise[call % 20])
        spent += seconds[batch]
        samples += batch
    # 20 trials at most, of batches no better than three times alone; else at most what noise of a quarter hides.
    assert spent <= samples * 1.25 / 0.8 + 20 * 5 * 3
