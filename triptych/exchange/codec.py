"""Bundles to manifest and payload, and back.

The manifest (`triptych.v1.BundleManifest`) says what lies where; the payload is the arrays' raw bytes, each at a
multiple of 64. Encoding copies no array, decoding yields views. Nothing is ever pickled. A manifest is not trusted:
whatever is wrong with one is a `ManifestMalformed`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from triptych.exchange.bundle import Bundle, Entry, TensorData, Value
from triptych.exchange.dtypes import DTYPES, WIRE_NAMES, shape_fault, strides_fault
from triptych.exchange.errors import BundleInvalid, ManifestMalformed
from triptych.exchange.message import SCHEMA_VERSION
from triptych.v1 import tensor_pb2 as pb

ALIGNMENT_BYTES = 64
MAX_DEPTH = 16
MAX_VALUES = 65_536
MAX_MANIFEST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Encoded:
    """A manifest without digest and chunk fields, and the payload as buffers to be sent one after the other."""

    manifest: pb.BundleManifest
    buffers: tuple[memoryview, ...]

    @property
    def byte_size(self) -> int:
        """Bytes of payload, the gaps before aligned arrays included."""
        return self.manifest.byte_size

    def pieces(self, size: int) -> Iterator[memoryview | bytes]:
        """The payload cut into `size` bytes each, the last one shorter; joined only where a cut spans buffers."""
        held: list[memoryview] = []
        room = size
        for buffer in self.buffers:
            rest = buffer
            while rest.nbytes:
                held.append(rest[:room])
                room -= held[-1].nbytes
                rest = rest[held[-1].nbytes :]
                if room == 0:
                    yield _joined(held)
                    held, room = [], size
        if held:
            yield _joined(held)


def _joined(views: list[memoryview]) -> memoryview | bytes:
    return views[0] if len(views) == 1 else b"".join(views)


def encode(bundle: Bundle) -> Encoded:
    """Lay a bundle out.

    Raises BundleInvalid for a value that cannot be carried, naming the entry.
    """
    writer = _Writer()
    values = []
    for name, entry in bundle.items():
        try:
            message = pb.NamedValue(name=name, kwargs_type=entry.kwargs_type)
            writer.write(entry.value, message.value, 0)
        except (BundleInvalid, TypeError, ValueError) as error:
            raise BundleInvalid(f"entry {name!r}: {error}") from error
        values.append(message)
    manifest = pb.BundleManifest(schema_version=SCHEMA_VERSION, values=values, byte_size=writer.size)
    if manifest.ByteSize() > MAX_MANIFEST_BYTES:
        raise BundleInvalid(
            f"a manifest of {manifest.ByteSize()} bytes; at most {MAX_MANIFEST_BYTES}: send long text as bytes"
        )
    return Encoded(manifest, tuple(writer.buffers))


class _Writer:
    """Walks values, fills their messages, and collects the buffers they lie in."""

    def __init__(self) -> None:
        self.size = 0
        self.buffers: list[memoryview] = []
        self._count = 0

    def write(self, value: Value, into: pb.Value, depth: int) -> None:
        self._count += 1
        if self._count > MAX_VALUES:
            raise BundleInvalid(f"more than {MAX_VALUES} values")
        match value:
            case None:
                into.none = True
            case bool():
                into.boolean = value
            case int():
                into.integer = value
            case float():
                into.number = value
            case str():
                into.text = value
            case bytes():
                into.blob.CopyFrom(pb.BytesSpan(offset=self._place(memoryview(value)), byte_size=len(value)))
            case TensorData():
                into.tensor.CopyFrom(self._span(value))
            case list():
                self._write_all(value, into.list, depth)
            case tuple():
                self._write_all(value, into.tuple, depth)
            case _:
                raise BundleInvalid(f"cannot carry a {type(value).__name__}")

    def _write_all(self, values: list[Value] | tuple[Value, ...], into: pb.ValueList, depth: int) -> None:
        if depth == MAX_DEPTH:
            raise BundleInvalid(f"nested deeper than {MAX_DEPTH}")
        into.SetInParent()
        for value in values:
            self.write(value, into.values.add(), depth + 1)

    def _span(self, tensor: TensorData) -> pb.TensorSpan:
        if tensor.dtype not in DTYPES:
            raise BundleInvalid(f"unknown dtype {tensor.dtype!r}")
        wire, item_bytes = DTYPES[tensor.dtype]
        view = _flat(tensor.data)
        why = shape_fault(tensor.shape, item_bytes, view.nbytes) or strides_fault(tensor.strides, tensor.shape)
        if why:
            raise BundleInvalid(why)
        return pb.TensorSpan(
            dtype=wire,
            shape=tensor.shape,
            strides=tensor.strides,
            offset=self._place(view),
            byte_size=view.nbytes,
        )

    def _place(self, view: memoryview) -> int:
        gap = -self.size % ALIGNMENT_BYTES
        if gap and view.nbytes:
            self.buffers.append(memoryview(bytes(gap)))
            self.size += gap
        offset = self.size if view.nbytes else 0
        if view.nbytes:
            self.buffers.append(view)
        self.size += view.nbytes
        return offset


def _flat(data: memoryview | bytes) -> memoryview:
    view = memoryview(data)
    if not view.c_contiguous:
        raise BundleInvalid("an array that is not C-contiguous")
    # A view with a zero in its shape cannot be cast.
    return view.cast("B") if view.nbytes else memoryview(b"")


def decode(manifest: pb.BundleManifest, payload: memoryview) -> dict[str, Entry]:
    """Rebuild a bundle; its arrays are views into `payload`, a flat view of bytes.

    Raises ManifestMalformed when a value is of no kind, or a span is out of bounds, out of order, misaligned, or of a
    size that does not fit its shape.
    """
    if payload.nbytes != manifest.byte_size:
        raise ManifestMalformed(f"a payload of {payload.nbytes} bytes; the manifest says {manifest.byte_size}")
    reader = _Reader(payload)
    bundle: dict[str, Entry] = {}
    for named in manifest.values:
        if named.name in bundle:
            raise ManifestMalformed(f"two entries named {named.name!r}")
        bundle[named.name] = Entry(reader.read(named.value, 0), named.kwargs_type)
    return bundle


class _Reader:
    """Walks value messages; spans must follow one another, so that no two arrays share bytes."""

    def __init__(self, payload: memoryview) -> None:
        self._payload = payload
        self._end = 0
        self._count = 0

    def read(self, message: pb.Value, depth: int) -> Value:
        self._count += 1
        if self._count > MAX_VALUES:
            raise ManifestMalformed(f"more than {MAX_VALUES} values")
        match message.WhichOneof("kind"):
            case "none":
                return None
            case "boolean":
                return message.boolean
            case "integer":
                return message.integer
            case "number":
                return message.number
            case "text":
                return message.text
            case "blob":
                return bytes(self._take(message.blob.offset, message.blob.byte_size))
            case "tensor":
                return self._tensor(message.tensor)
            case "list":
                return self._read_all(message.list, depth)
            case "tuple":
                return tuple(self._read_all(message.tuple, depth))
            case _:
                raise ManifestMalformed("a value of no kind")

    def _read_all(self, message: pb.ValueList, depth: int) -> list[Value]:
        if depth == MAX_DEPTH:
            raise ManifestMalformed(f"nested deeper than {MAX_DEPTH}")
        return [self.read(value, depth + 1) for value in message.values]

    def _tensor(self, span: pb.TensorSpan) -> TensorData:
        if span.dtype not in WIRE_NAMES:
            raise ManifestMalformed(f"unknown dtype {span.dtype}")
        name, item_bytes = WIRE_NAMES[span.dtype]
        shape, strides = tuple(span.shape), tuple(span.strides)
        why = shape_fault(shape, item_bytes, span.byte_size) or strides_fault(strides, shape)
        if why:
            raise ManifestMalformed(why)
        return TensorData(name, shape, self._take(span.offset, span.byte_size), strides)

    def _take(self, offset: int, byte_size: int) -> memoryview:
        if byte_size == 0:
            return self._payload[:0]
        if offset % ALIGNMENT_BYTES or offset < self._end or offset + byte_size > len(self._payload):
            raise ManifestMalformed(f"a span of {byte_size} bytes at {offset}, {len(self._payload)} in all")
        self._end = offset + byte_size
        return self._payload[offset : self._end]
