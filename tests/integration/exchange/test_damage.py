"""Bundles that lost, or changed, a part."""

import pytest

from tests.integration.exchange.payloads import MIB, bundle_of, subject
from tests.natsd import NatsServer
from triptych.exchange import BundleCorrupt, BundleGone, Exchange, ExchangeConfig
from triptych.exchange.connection import Connection
from triptych.exchange.store import Store
from triptych.v1.tensor_pb2 import DataRef


async def stored(exchange: Exchange) -> DataRef:
    return await exchange.put("latents", bundle_of(3 * MIB))


async def overwrite(exchange: Exchange, ref: DataRef, part: str, data: bytes) -> None:
    await exchange.jetstream.publish(subject(ref, part), data)


@pytest.mark.parametrize("part", ["0", "2", "m"])
async def test_a_missing_part_is_a_bundle_gone(exchange: Exchange, part: str) -> None:
    ref = await stored(exchange)
    await exchange.jetstream.purge_stream("LATENTS", subject=subject(ref, part))
    with pytest.raises(BundleGone):
        await exchange.get(ref)


async def test_a_miss_is_asked_again_of_the_leader(exchange: Exchange) -> None:
    ref = await stored(exchange)
    await exchange.delete(ref)
    asked = await exchange.control.subscribe("$JS.API.STREAM.MSG.GET.LATENTS")
    assert not await exchange.exists(ref)
    assert subject(ref, "m").encode() in (await asked.next_msg(timeout=5)).data


async def test_the_leader_has_the_same_message(nats_server: NatsServer, exchange: Exchange) -> None:
    ref = await exchange.put("latents", bundle_of(2 * MIB))
    await overwrite(exchange, ref, "1", b"")
    connection = Connection(ExchangeConfig(url=nats_server.url), "test")
    await connection.open()
    store = Store("latents")
    for part in ("0", "1", "m"):
        place = subject(ref, part)
        assert await store.read_from_leader(connection, place) == await store.read(connection, place) is not None
    await connection.close()


@pytest.mark.parametrize(
    ("part", "data", "why"),
    [
        ("1", bytes(MIB), "digest"),
        ("1", bytes(MIB - 1), "chunk 1 has"),
        ("0", b"", "chunk 0 has"),
        ("m", b"", "cut off"),
        ("m", b"\x10\0\0\0nonsense", "cut off"),
        ("m", b"\x08\0\0\0nonsense", "not a BundleManifest"),
    ],
)
async def test_a_changed_part_is_a_corrupt_bundle(exchange: Exchange, part: str, data: bytes, why: str) -> None:
    ref = await stored(exchange)
    await overwrite(exchange, ref, part, data)
    with pytest.raises(BundleCorrupt, match=why):
        await exchange.get(ref)


async def test_a_changed_small_bundle_is_corrupt(exchange: Exchange) -> None:
    ref = await exchange.put("latents", bundle_of(1000))
    message = await exchange.jetstream.get_last_msg("LATENTS", subject(ref, "m"))
    await overwrite(exchange, ref, "m", message.data[:-1] + bytes([message.data[-1] ^ 1]))
    with pytest.raises(BundleCorrupt, match="digest"):
        await exchange.get(ref)


async def test_the_manifest_of_another_bundle_is_told(exchange: Exchange) -> None:
    ref, other = await exchange.put("latents", bundle_of(500)), await exchange.put("latents", bundle_of(500))
    message = await exchange.jetstream.get_last_msg("LATENTS", subject(other, "m"))
    await overwrite(exchange, ref, "m", message.data)
    with pytest.raises(BundleCorrupt, match="another bundle"):
        await exchange.get(ref)
