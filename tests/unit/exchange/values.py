"""Hypothesis strategies for everything that a bundle can carry, and a comparison that tells 1 from True."""

from math import prod

from hypothesis import strategies as st

from triptych.exchange import Entry, TensorData, Value
from triptych.exchange.dtypes import DTYPES

_INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
_SCALARS = st.none() | st.booleans() | _INT64 | st.floats() | st.text() | st.binary(max_size=200)


@st.composite
def tensors(draw: st.DrawFn) -> TensorData:
    """Arrays of every dtype, of rank 0 to 4, empty ones included."""
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    size = prod(shape) * DTYPES[dtype][1]
    return TensorData(dtype, shape, draw(st.binary(min_size=size, max_size=size)))


def _nested(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    lists = st.lists(inner, max_size=4)
    return lists | lists.map(tuple)


values: st.SearchStrategy[Value] = st.recursive(_SCALARS | tensors(), _nested, max_leaves=8)
bundles = st.dictionaries(st.text(max_size=20), st.builds(Entry, values, st.text(max_size=10)), max_size=5)


def same(one: object, other: object) -> bool:
    """Equality of type and content, down to the sign of zero and NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return repr(one) == repr(other)
    return one == other
