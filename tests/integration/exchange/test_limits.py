"""A store at its byte limit, and puts that do not end well."""

import asyncio
from collections.abc import AsyncIterator

import nats
import pytest

from services.stage.patience import put_patiently
from tests.integration.exchange.payloads import MIB, bundle_of, message_count
from tests.natsd import NatsServer
from triptych.exchange import BundleInvalid, Exchange, ExchangeConfig, StoreFull


@pytest.fixture
async def narrow(nats_server: NatsServer) -> AsyncIterator[Exchange]:
    """An exchange whose latents may take 6 MiB, and begin empty."""
    async with Exchange(ExchangeConfig(url=nats_server.url, latents_max_bytes=6 * MIB)) as exchange:
        await exchange.jetstream.purge_stream("LATENTS")
        yield exchange


async def test_a_full_store_refuses_newcomers_and_keeps_what_it_has(narrow: Exchange) -> None:
    bundle = bundle_of(4 * MIB)
    ref = await narrow.put("latents", bundle)
    before = await message_count(narrow)
    with pytest.raises(StoreFull) as caught:
        await narrow.put("latents", bundle_of(4 * MIB))
    assert caught.value.store == "latents"
    assert await message_count(narrow) == before
    assert await narrow.get(ref) == bundle
    await narrow.delete(ref)
    await narrow.put("latents", bundle)


async def test_a_full_store_refuses_small_bundles_too(narrow: Exchange) -> None:
    for _ in range(5):
        await narrow.put("latents", bundle_of(MIB))
    with pytest.raises(StoreFull):
        await narrow.put("latents", bundle_of(MIB))


async def test_a_full_store_does_not_touch_another(narrow: Exchange) -> None:
    await narrow.put("latents", bundle_of(4 * MIB))
    with pytest.raises(StoreFull):
        await narrow.put("latents", bundle_of(4 * MIB))
    await narrow.put("outputs", bundle_of(8 * MIB))


async def test_a_bundle_over_the_limit_is_refused_before_it_is_sent(nats_server: NatsServer) -> None:
    async with Exchange(ExchangeConfig(url=nats_server.url, max_bundle_bytes=MIB)) as exchange:
        with pytest.raises(BundleInvalid, match="at most"):
            await exchange.put("outputs", bundle_of(MIB + 1))


async def test_a_bundle_that_the_empty_store_could_not_hold_is_refused(narrow: Exchange) -> None:
    with pytest.raises(BundleInvalid, match="latents_max_bytes"):
        await narrow.put("latents", bundle_of(6 * MIB))


async def test_a_cancelled_put_leaves_nothing(nats_server: NatsServer) -> None:
    watcher = await nats.connect(nats_server.url)
    chunks = await watcher.subscribe("tt.conditioning.>")
    await watcher.flush()
    async with Exchange(ExchangeConfig(url=nats_server.url)) as exchange:
        before = await message_count(exchange, "conditioning")
        put = asyncio.create_task(exchange.put("conditioning", bundle_of(64 * MIB)))
        await chunks.next_msg(timeout=5)
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
    async with Exchange(ExchangeConfig(url=nats_server.url)) as exchange:
        assert await message_count(exchange, "conditioning") == before
    await watcher.close()


async def test_messages_that_a_slow_subscriber_loses_are_counted(exchange: Exchange) -> None:
    await exchange.control.subscribe("flood", pending_msgs_limit=1)
    for _ in range(10):
        await exchange.control.publish("flood", b"")
    async with asyncio.timeout(20):
        # The server may answer a flush before it delivers what came ahead of it.
        while not exchange.counters["control"].slow_consumers:
            await exchange.control.flush()
    assert exchange.connected


async def test_who_has_patience_waits_for_room(narrow: Exchange) -> None:
    filler = await narrow.put("latents", bundle_of(4 * MIB))
    bundle = bundle_of(4 * MIB)
    with pytest.raises(StoreFull):
        await put_patiently(narrow, "latents", bundle, [0.01])
    waiting = asyncio.create_task(put_patiently(narrow, "latents", bundle, [0.05] * 200))
    await asyncio.sleep(0)
    await narrow.delete(filler)
    assert await narrow.get(await waiting) == bundle
