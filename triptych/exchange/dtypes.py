"""Element types and shapes of arrays on the exchange."""

from math import prod

from triptych.v1 import tensor_pb2 as pb

MAX_RANK = 16
INT64_MAX = 2**63 - 1

# torch's name → wire value, bytes per element.
DTYPES: dict[str, tuple[pb.Dtype.ValueType, int]] = {
    "float64": (pb.DTYPE_FLOAT64, 8),
    "float32": (pb.DTYPE_FLOAT32, 4),
    "float16": (pb.DTYPE_FLOAT16, 2),
    "bfloat16": (pb.DTYPE_BFLOAT16, 2),
    "float8_e4m3fn": (pb.DTYPE_FLOAT8_E4M3FN, 1),
    "float8_e5m2": (pb.DTYPE_FLOAT8_E5M2, 1),
    "int64": (pb.DTYPE_INT64, 8),
    "int32": (pb.DTYPE_INT32, 4),
    "int16": (pb.DTYPE_INT16, 2),
    "int8": (pb.DTYPE_INT8, 1),
    "uint8": (pb.DTYPE_UINT8, 1),
    "bool": (pb.DTYPE_BOOL, 1),
}
WIRE_NAMES = {wire: (name, item_bytes) for name, (wire, item_bytes) in DTYPES.items()}


def shape_fault(shape: tuple[int, ...], item_bytes: int, byte_size: int) -> str:
    """Why a shape and a size do not go together; empty if they do."""
    if len(shape) > MAX_RANK:
        return f"rank {len(shape)}; at most {MAX_RANK}"
    if any(extent < 0 for extent in shape) or prod(max(extent, 1) for extent in shape) * item_bytes > INT64_MAX:
        return f"impossible shape {shape}"
    if prod(shape) * item_bytes != byte_size:
        return f"{byte_size} bytes for shape {shape} of {item_bytes}-byte elements"
    return ""


def strides_fault(strides: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """Why strides (in elements; empty for row-major) do not lay a shape out within its own size; empty if they do."""
    if not strides:
        return ""
    if len(strides) != len(shape) or any(stride < 0 for stride in strides):
        return f"strides {strides} for shape {shape}"
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True) if extent > 0)
    return f"strides {strides} lead out of shape {shape}" if last >= max(prod(shape), 1) else ""
