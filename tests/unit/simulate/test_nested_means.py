"""Means over nested groups: shrunk where little was seen, bounded, and never outside of what was seen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.simulate.nested_means import NestedMeans

PATHS = st.lists(st.sampled_from("abc"), max_size=3)
VALUES = st.floats(-100.0, 100.0)


def test_nothing_seen_is_the_prior() -> None:
    assert NestedMeans(7.0).mean(("any", "where")) == 7.0


def test_a_group_seen_once_leans_on_the_one_around_it() -> None:
    means = NestedMeans(0.0, prior_weight=1.0, keep=1.0)
    for _ in range(99):
        means.add(("a", "x"), 10.0)
    means.add(("a", "y"), 20.0)
    assert means.mean(("a", "x")) == pytest.approx(10.0, abs=0.2)
    assert means.mean(("a", "y")) == pytest.approx(15.0, abs=0.2)
    assert means.mean(("a", "new")) == pytest.approx(10.0, abs=0.4)


def test_it_follows_a_change() -> None:
    means = NestedMeans(0.0, keep=0.8)
    for value in [1.0] * 100 + [5.0] * 100:
        means.add(("a",), value)
    assert means.mean(("a",)) == pytest.approx(5.0, abs=0.3)


@given(st.lists(st.tuples(PATHS, VALUES), max_size=40), PATHS)
def test_a_mean_lies_among_prior_and_values(seen: list[tuple[list[str], float]], path: list[str]) -> None:
    means = NestedMeans(1.0)
    for where, value in seen:
        means.add(where, value)
    values = [1.0, *(value for _, value in seen)]
    assert min(values) - 1e-9 <= means.mean(path) <= max(values) + 1e-9


def test_the_groups_used_last_are_kept() -> None:
    means = NestedMeans(0.0, max_groups=10)
    for number in range(100):
        means.add(("often",), 4.0)
        means.add((f"once {number}",), 4.0)
    assert len(means) == 10
    assert means.mean(("often",)) == pytest.approx(4.0, abs=0.3)
