"""The order of ranks, and places in it."""

from hypothesis import given
from hypothesis import strategies as st

from services.router.core.queue import RankQueue
from services.router.core.task import Key


def key(number: int) -> Key:
    return (number / 7, f"job{number}", 0)


@given(numbers=st.sets(st.integers(0, 3000), max_size=20), crowd=st.booleans(), probe=st.integers(0, 3000))
def test_places_are_counted_from_the_first(numbers: set[int], crowd: bool, probe: int) -> None:
    queue = RankQueue()
    inside = numbers | (set(range(1000, 2000)) if crowd else set())  # enough for several buckets
    for number in inside:
        queue.add(key(number))
    for number in range(1200, 1800) if crowd else ():
        queue.remove(key(number))
    ordered = sorted(key(number) for number in inside - (set(range(1200, 1800)) if crowd else set()))
    assert list(queue) == ordered
    before = sum(each < key(probe) for each in ordered)
    assert queue.position(key(probe)) == before
    for count in (0, 1, before, before + 1, 8, 300):
        assert queue.is_among_first(count, key(probe)) == (before < count)
