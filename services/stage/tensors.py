"""Between torch and the exchange: named values of a pipeline as a bundle and back, without a copy, never pickled."""

from collections.abc import Mapping
from typing import Any, cast

import torch

from triptych.exchange.bundle import Bundle, Entry, TensorData, Value

_DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in (
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
        *("int64", "int32", "int16", "int8", "uint8", "bool"),
    )
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def to_bundle(values: Mapping[str, tuple[Any, str]]) -> Bundle:
    """Values with their `kwargs_type` as a bundle. Tensors on a device are copied to the CPU, CPU tensors are shared.

    Raises `TypeError` for a value that the exchange cannot carry, a picture or a function say.
    """
    return {name: Entry(_to_value(name, value), kind) for name, (value, kind) in values.items()}


def from_bundle(bundle: Bundle, device: torch.device) -> dict[str, tuple[Any, str]]:
    """The values of a bundle, tensors on `device`, with their `kwargs_type`."""
    return {name: (_from_value(entry.value, device), entry.kwargs_type) for name, entry in bundle.items()}


def is_carried(value: Any) -> bool:
    """Whether the exchange can carry this value."""
    if isinstance(value, list | tuple):
        return all(is_carried(item) for item in value)
    return value is None or isinstance(value, torch.Tensor | bytes | str | int | float | bool)


def _to_value(name: str, value: Any) -> Value:
    if isinstance(value, torch.Tensor):
        return _to_tensor_data(value)
    if isinstance(value, list):
        return [_to_value(name, item) for item in value]
    if isinstance(value, tuple):
        return tuple(_to_value(name, item) for item in value)
    if value is None or isinstance(value, bytes | str | int | float | bool):
        return value
    raise TypeError(f"{name}: a {type(value).__name__} cannot be carried between stages")


def _to_tensor_data(tensor: torch.Tensor) -> TensorData:
    if tensor.dtype not in _NAMES:
        raise TypeError(f"tensors of {tensor.dtype} cannot be carried between stages")
    tensor = tensor.detach().cpu()
    if not _is_dense(tensor):
        tensor = tensor.contiguous()
    # Its elements as they lie in memory. numpy knows no bfloat16 or float8: look at the bytes.
    flat = tensor.as_strided((tensor.numel(),), (1,))
    raw = memoryview(cast(Any, flat.view(torch.uint8).numpy())) if flat.numel() else b""
    strides = () if tensor.is_contiguous() else tensor.stride()
    return TensorData(_NAMES[tensor.dtype], tuple(tensor.shape), raw, tuple(strides))


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill one stretch of memory, in whatever order."""
    return bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))


def _from_value(value: Value, device: torch.device) -> Any:
    if isinstance(value, TensorData):
        return _from_tensor_data(value).to(device)
    if isinstance(value, list):
        return [_from_value(item, device) for item in value]
    if isinstance(value, tuple):
        return tuple(_from_value(item, device) for item in value)
    return value


def _from_tensor_data(data: TensorData) -> torch.Tensor:
    dtype = _DTYPES[data.dtype]
    if not len(data.data):
        return torch.empty(data.shape, dtype=dtype)
    flat = torch.frombuffer(data.data, dtype=dtype)
    return flat.as_strided(data.shape, data.strides) if data.strides else flat.reshape(data.shape)
