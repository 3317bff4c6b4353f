"""Bundles through a real server."""

import asyncio
import ctypes

import pytest

from tests.integration.exchange.payloads import MIB, bundle_of, data_of, message_count
from triptych.exchange import BundleGone, BundleInvalid, Entry, Exchange, TensorData, Value, events_subject
from triptych.exchange.digest import digest_of
from triptych.exchange.dtypes import DTYPES
from triptych.v1.tensor_pb2 import DataRef


@pytest.mark.parametrize("byte_size", [0, 1, 63, 64 * 1024, MIB - 1, MIB, MIB + 1, 3 * MIB + 17, 8 * MIB, 64 * MIB])
async def test_every_size_comes_back(exchange: Exchange, byte_size: int) -> None:
    bundle = bundle_of(byte_size)
    ref = await exchange.put("latents", bundle)
    assert ref.byte_size == byte_size
    assert ref.digest == digest_of([data_of(bundle)])
    assert await exchange.get(ref) == bundle
    await exchange.delete(ref)


async def test_every_kind_of_value_comes_back(exchange: Exchange) -> None:
    arrays: list[Value] = [TensorData(name, (2, 3), bytes(6 * size)) for name, (_, size) in DTYPES.items()]
    others: list[Value] = [None, True, -(2**63), 2.5, "naïve", b"\0", [], (), [(1,), TensorData("bool", (), b"\1")]]
    bundle = {
        "arrays": Entry(arrays),
        "others": Entry(others, "kind"),
        "big": Entry(TensorData("int8", (MIB,), bytes(MIB))),
    }
    assert await exchange.get(await exchange.put("conditioning", bundle)) == bundle


@pytest.mark.parametrize("byte_size", [100, 2 * MIB])
async def test_arrays_are_writable_and_aligned(exchange: Exchange, byte_size: int) -> None:
    found = data_of(await exchange.get(await exchange.put("latents", bundle_of(byte_size))))
    assert not found.readonly
    assert ctypes.addressof(ctypes.c_char.from_buffer(found)) % 64 == 0


async def test_many_at_once(exchange: Exchange) -> None:
    bundles = [bundle_of(size) for size in (10, 200_000, 5 * MIB) for _ in range(8)]
    refs = await asyncio.gather(*(exchange.put("latents", bundle) for bundle in bundles))
    assert await asyncio.gather(*(exchange.get(ref) for ref in refs)) == bundles
    assert len({ref.bundle_id for ref in refs}) == len(refs)


@pytest.mark.parametrize("byte_size", [10, 3 * MIB])
async def test_a_deleted_bundle_is_gone(exchange: Exchange, byte_size: int) -> None:
    before = await message_count(exchange, "outputs")
    ref = await exchange.put("outputs", bundle_of(byte_size))
    assert await exchange.exists(ref)
    await exchange.delete(ref)
    await exchange.delete(ref)
    assert not await exchange.exists(ref)
    with pytest.raises(BundleGone) as caught:
        await exchange.get(ref)
    assert caught.value.ref == ref
    assert await message_count(exchange, "outputs") == before


@pytest.mark.parametrize("ref", [DataRef(store="tape", bundle_id="0" * 32), DataRef(store="latents", bundle_id="*")])
async def test_what_is_no_reference_is_refused(exchange: Exchange, ref: DataRef) -> None:
    for operation in (exchange.get, exchange.exists, exchange.delete):
        with pytest.raises(BundleInvalid):
            await operation(ref)


async def test_buckets_and_events_are_there(exchange: Exchange) -> None:
    for name in ("jobs", "conditioning", "leader"):
        bucket = await exchange.bucket(name)
        revision = await bucket.create("key", b"value")
        assert (await bucket.get("key")).revision == revision
    await exchange.jetstream.publish(events_subject("job-1"), b"event")
    found = await exchange.jetstream.get_last_msg("EVENTS", events_subject("job-1"), direct=True)
    assert found.data == b"event"
    assert exchange.connected
