"""What the exchange carries, in terms of no framework: named values, some of them arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


@dataclass(frozen=True, slots=True)
class TensorData:
    """One dense array: raw little-endian bytes.

    `dtype` is torch's name without the prefix ("float32", "bfloat16", "float8_e4m3fn"); see `triptych.exchange.dtypes`
    for the list. `data` may be any C-contiguous view of `prod(shape)` elements; `strides` (in elements) say how they
    lie where that is not row by row. The data must not change while a put is under way. After a get it is a writable
    view, aligned to 64 bytes, into a buffer of the bundle's own.
    """

    dtype: str
    shape: tuple[int, ...]
    data: memoryview | bytes
    strides: tuple[int, ...] = ()


Value: TypeAlias = "TensorData | bytes | str | int | float | bool | list[Value] | tuple[Value, ...] | None"


class Entry(NamedTuple):
    """A value, and the block's own kind of input it belongs to ("denoiser_input_fields", say; empty if none)."""

    value: Value
    kwargs_type: str = ""


# Names to entries; the order is kept.
Bundle: TypeAlias = Mapping[str, Entry]
