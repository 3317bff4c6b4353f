"""The ledger against a list that is summed each time."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.core.ledger import Ledger
from services.router.core.record import Key, Seconds

keys = st.tuples(st.integers(0, 40).map(float), st.sampled_from("ab"), st.just(0))
seconds = st.tuples(*[st.integers(0, 100).map(float)] * 3)


@given(st.lists(st.tuples(keys, seconds, st.booleans())), keys)
def test_sums_ahead_are_those_of_a_plain_list(changes: list[tuple[Key, Seconds, bool]], place: Key) -> None:
    ledger = Ledger()
    plain: dict[Key, Seconds] = {}
    for key, value, remove in changes:
        if remove and key in plain:
            ledger.remove(key)
            del plain[key]
        else:
            ledger.put(key, value)
            plain[key] = value
    ahead = [value for key, value in plain.items() if key < place]
    assert len(ledger) == len(plain)
    assert ledger.ahead(place) == tuple(sum(value[stage] for value in ahead) for stage in range(3))
    assert ledger.total() == ledger.ahead((inf, "", 0))


def test_many_entries_are_split_into_buckets_and_taken_out_again() -> None:
    ledger = Ledger()
    places = [(float(index * 7919 % 2003), "job", 0) for index in range(2003)]
    for key in places:
        ledger.put(key, (1.0, key[0], 0.0))
    for rank in (0, 1, 256, 1000, 2002):
        assert ledger.ahead((float(rank), "", 0)) == (rank, rank * (rank - 1) / 2, 0.0)
    for key in places:
        ledger.remove(key)
    assert len(ledger) == 0
    assert ledger.total() == (0.0, 0.0, 0.0)


def test_what_is_not_there_cannot_be_removed() -> None:
    ledger = Ledger()
    ledger.put((1.0, "a", 0), (1.0, 1.0, 1.0))
    with pytest.raises(KeyError):
        ledger.remove((1.0, "b", 0))


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=40),
    st.integers(0, 40),
    st.integers(0, 20),
    st.sampled_from([0.0, 0.25, 1.0, 2.0]),
)
def test_the_first_gap_is_the_first_place_that_fits(
    entries: list[tuple[int, int]], start: int, lead: int, slope: float
) -> None:
    ledger, base = Ledger(width=1), start - lead
    for index, (rank, value) in enumerate(entries):
        ledger.put((float(rank), f"{index:02}", 0), (float(value),))

    def asked(limit: float) -> float:
        return max(start, base + slope * sum(value for rank, value in entries if rank <= limit))

    ends = [asked(limit) for limit in range(-1, 61)]
    found = ledger.first_gap(float(start), float(base), slope)
    assert found == min(end for end in ends if asked(end) <= end)
    assert ledger.first_gap(float(start), float(base), slope) == found


def test_a_gap_is_found_across_buckets() -> None:
    ledger = Ledger(width=1)
    for index in range(1000):
        ledger.put((100.0 + 2.0 * index, f"{index:04}", 0), (2.0,))
    assert ledger.first_gap(100.0, 100.0, 1.0) == 2100.0
    ledger.remove((1500.0, "0700", 0))
    assert ledger.first_gap(100.0, 100.0, 1.0) == 1500.0
    assert ledger.first_gap(101.9995, 101.9995, 1.0) == pytest.approx(2099.9995)
    assert ledger.first_gap(400.0, 100.0, 1.0) == 1500.0
    assert ledger.first_gap(1800.0, 100.0, 1.0) == 1800.0
