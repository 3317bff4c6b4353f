"""Bundles through the codec, without a server."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.exchange.values import bundles, same
from triptych.exchange import BundleInvalid, Entry, TensorData, Value
from triptych.exchange.codec import ALIGNMENT_BYTES, MAX_DEPTH, decode, encode
from triptych.exchange.dtypes import MAX_RANK
from triptych.exchange.errors import ManifestMalformed
from triptych.exchange.message import from_message, to_message
from triptych.exchange.parcel import pack
from triptych.v1 import tensor_pb2 as pb


@given(bundles)
def test_a_bundle_comes_back_as_it_was(bundle: dict[str, Entry]) -> None:
    manifest, payload = from_message(pack(bundle))
    found = decode(manifest, payload)
    assert list(found) == list(bundle)
    assert all(same(found[name].value, bundle[name].value) for name in bundle)
    assert all(found[name].kwargs_type == bundle[name].kwargs_type for name in bundle)


@given(bundles, st.integers(1, 300))
def test_pieces_are_the_payload_cut_evenly(bundle: dict[str, Entry], size: int) -> None:
    encoded = encode(bundle)
    pieces = list(encoded.pieces(size))
    assert b"".join(pieces) == b"".join(encoded.buffers)
    assert all(len(piece) == size for piece in pieces[:-1])
    assert len(pieces) == math.ceil(encoded.byte_size / size)


def test_arrays_are_neither_copied_in_nor_out() -> None:
    data = bytearray(1000)
    encoded = encode({"a": Entry(TensorData("uint8", (1000,), memoryview(data)))})
    assert encoded.buffers[0].obj is data
    payload = memoryview(bytearray(1000))
    tensor = decode(encoded.manifest, payload)["a"].value
    assert isinstance(tensor, TensorData)
    assert isinstance(tensor.data, memoryview)
    assert tensor.data.obj is payload.obj


@given(st.lists(st.integers(0, 200), max_size=10))
def test_every_array_begins_at_a_multiple_of_64(sizes: list[int]) -> None:
    encoded = encode({"all": Entry([TensorData("uint8", (size,), bytes(size)) for size in sizes])})
    assert all(value.tensor.offset % ALIGNMENT_BYTES == 0 for value in encoded.manifest.values[0].value.list.values)


def nested(depth: int) -> Value:
    value: Value = 1
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_goes_as_deep_as_promised() -> None:
    bundle = {"deep": Entry(nested(MAX_DEPTH))}
    manifest, payload = from_message(pack(bundle))
    assert decode(manifest, payload) == bundle


@pytest.mark.parametrize(
    "value",
    [
        nested(MAX_DEPTH + 1),
        2**63,
        "\ud800",
        "long" * (1 << 20),
        TensorData("complex64", (1,), bytes(8)),
        TensorData("float32", (2,), bytes(4)),
        TensorData("float32", (-1, -1), bytes(4)),
        TensorData("uint8", (0, 2**63), b""),
        TensorData("uint8", (1,) * (MAX_RANK + 1), b"1"),
        TensorData("uint8", (2,), memoryview(b"1234")[::2]),
        {"a": 1},
        {1},
        1j,
        object(),
        bytearray(b"1"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_carried_is_refused_by_name(value: Value) -> None:
    with pytest.raises(BundleInvalid, match=r"entry 'odd'|manifest of"):
        encode({"odd": Entry(value)})


def two_tensors() -> dict[str, Entry]:
    return {
        "a": Entry(TensorData("float32", (4, 4), bytes(64)), "denoiser_input_fields"),
        "b": Entry([TensorData("bfloat16", (8,), bytes(16)), b"blob", None, "text"]),
    }


@given(st.data())
def test_damaged_messages_fail_with_the_typed_error_or_not_at_all(data: st.DataObject) -> None:
    message = bytearray(pack(two_tensors()))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(message)))
        message[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    read_tolerantly(bytes(message))


@given(st.binary(max_size=300))
def test_arbitrary_bytes_fail_with_the_typed_error_or_not_at_all(message: bytes) -> None:
    read_tolerantly(message)


def read_tolerantly(message: bytes) -> None:
    try:
        manifest, payload = from_message(message)
        decode(manifest, memoryview(bytes(manifest.byte_size)) if manifest.byte_size < 1 << 20 else payload)
    except ManifestMalformed:
        pass


def _span(**fields: int) -> Callable[[pb.BundleManifest], None]:
    def damage(manifest: pb.BundleManifest) -> None:
        for name, value in fields.items():
            setattr(manifest.values[0].value.tensor, name, value)

    return damage


def _shape(*shape: int) -> Callable[[pb.BundleManifest], None]:
    return lambda manifest: manifest.values[0].value.tensor.MergeFrom(pb.TensorSpan(shape=shape))


def _second(offset: int) -> Callable[[pb.BundleManifest], None]:
    return lambda manifest: setattr(manifest.values[1].value.list.values[0].tensor, "offset", offset)


def _same_name(manifest: pb.BundleManifest) -> None:
    manifest.values[1].name = "a"


def _no_kind(manifest: pb.BundleManifest) -> None:
    manifest.values[0].value.Clear()


def _deeper(manifest: pb.BundleManifest) -> None:
    value = manifest.values[0].value
    for _ in range(MAX_DEPTH + 1):
        value.Clear()
        value.list.SetInParent()
        value = value.list.values.add()
    value.none = True


@pytest.mark.parametrize(
    "damage",
    [
        _span(offset=8),
        _span(offset=1 << 62),
        _span(byte_size=1 << 63),
        _span(dtype=0),
        _span(dtype=99),
        _span(dtype=pb.DTYPE_BOOL),
        _shape(2),
        _shape(1 << 63),
        _second(0),
        _same_name,
        _no_kind,
        _deeper,
    ],
)
def test_every_bound_of_a_value_is_checked(damage: Callable[[pb.BundleManifest], None]) -> None:
    encoded = encode(two_tensors())
    damage(encoded.manifest)
    with pytest.raises(ManifestMalformed):
        decode(encoded.manifest, memoryview(bytes(encoded.byte_size)))


@pytest.mark.parametrize(
    "damage",
    [
        {"schema_version": 2},
        {"digest": b"short"},
        {"chunk_count": 1},
        {"chunk_count": 2, "chunk_bytes": 64},
        {"byte_size": 10},
    ],
)
def test_every_field_of_a_manifest_is_checked(damage: dict[str, int]) -> None:
    encoded = encode(two_tensors())
    encoded.manifest.digest = bytes(32)
    for name, value in damage.items():
        setattr(encoded.manifest, name, value)
    with pytest.raises(ManifestMalformed):
        from_message(to_message(encoded.manifest, encoded.buffers))


def test_a_payload_of_another_size_is_refused() -> None:
    encoded = encode(two_tensors())
    with pytest.raises(ManifestMalformed, match="payload"):
        decode(encoded.manifest, memoryview(bytes(encoded.byte_size + 1)))
