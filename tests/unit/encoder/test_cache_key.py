"""Cache keys: equal for equal facts alone."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from services.encoder.cache_key import cache_key

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
facts = st.dictionaries(
    st.text(min_size=1),
    st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8),
)


def frozen(value: object) -> object:
    """A form in which values of different types differ (1, 1.0 and True are equal to Python)."""
    if isinstance(value, dict):
        return ("map", tuple(sorted((name, frozen(item)) for name, item in value.items())))
    if isinstance(value, list):
        return ("list", tuple(frozen(item) for item in value))
    return (type(value).__name__, math.copysign(1, value) if value == 0 and isinstance(value, float) else repr(value))


@given(facts, facts)
def test_keys_are_equal_if_and_only_if_the_facts_are(one: dict[str, object], other: dict[str, object]) -> None:
    assert (cache_key(one) == cache_key(other)) == (repr(frozen(one)) == repr(frozen(other)))


@given(facts)
def test_the_order_of_facts_does_not_matter(one: dict[str, object]) -> None:
    assert cache_key(one) == cache_key(dict(reversed(one.items())))


def test_text_cannot_run_over_into_its_neighbour() -> None:
    assert cache_key({"a": ["bc", "d"]}) != cache_key({"a": ["b", "cd"]})


def test_pictures_are_told_by_their_pixels() -> None:
    red, green = Image.new("RGB", (2, 2), "red"), Image.new("RGB", (2, 2), "green")
    assert cache_key({"image": red}) == cache_key({"image": red.copy()})
    assert len({cache_key({"image": each}) for each in (red, green, red.resize((1, 4)), red.convert("L"))}) == 4


def test_what_cannot_be_told_is_refused() -> None:
    with pytest.raises(TypeError, match="function"):
        cache_key({"callback": cache_key})
