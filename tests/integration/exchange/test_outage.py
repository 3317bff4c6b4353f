"""A server that is away, comes back, or comes back empty."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest

from tests.integration.exchange.payloads import MIB, bundle_of
from tests.natsd import NatsServer
from triptych.exchange import BundleGone, Exchange, ExchangeConfig, ExchangeUnavailable

BOUND_S = 0.5
# On top of the bound, for a busy machine.
SLACK_S = 2.0


@pytest.fixture
async def impatient(server: NatsServer) -> AsyncIterator[Exchange]:
    """An exchange that waits half a second."""
    async with Exchange(ExchangeConfig(url=server.url, answer_timeout_s=BOUND_S)) as exchange:
        yield exchange


@pytest.fixture
async def patient(server: NatsServer) -> AsyncIterator[Exchange]:
    """An exchange that outwaits a restart."""
    async with Exchange(ExchangeConfig(url=server.url, answer_timeout_s=30, reconnect_pause_s=0.05)) as exchange:
        yield exchange


async def test_without_a_server_it_does_not_open(server: NatsServer) -> None:
    server.stop()
    start = time.monotonic()
    with pytest.raises(ExchangeUnavailable, match=server.url):
        async with Exchange(ExchangeConfig(url=server.url, connect_timeout_s=BOUND_S)):
            pass
    assert time.monotonic() - start < BOUND_S + SLACK_S


async def test_without_jetstream_it_does_not_open(tmp_path: Path) -> None:
    bare = tmp_path / "bare.conf"
    bare.write_text("max_payload: 8MB\n")
    server = NatsServer(tmp_path, bare)
    server.start()
    with pytest.raises(ExchangeUnavailable, match="JetStream"):
        async with Exchange(ExchangeConfig(url=server.url, connect_timeout_s=BOUND_S)):
            pass
    server.stop()


async def test_a_server_for_small_messages_is_refused(tmp_path: Path) -> None:
    small = tmp_path / "small.conf"
    small.write_text("jetstream {}\n")
    server = NatsServer(tmp_path, small)
    server.start()
    with pytest.raises(ExchangeUnavailable, match="max_payload"):
        async with Exchange(ExchangeConfig(url=server.url)):
            pass
    server.stop()


@pytest.mark.parametrize("byte_size", [100, 32 * MIB])
async def test_while_the_server_is_down_everything_fails_in_time(
    server: NatsServer, impatient: Exchange, byte_size: int
) -> None:
    ref = await impatient.put("latents", bundle_of(byte_size))
    server.kill()
    for operation in (lambda: impatient.put("latents", bundle_of(byte_size)), lambda: impatient.get(ref)):
        start = time.monotonic()
        with pytest.raises(ExchangeUnavailable):
            await operation()
        assert time.monotonic() - start < BOUND_S + SLACK_S
    assert not impatient.connected
    assert impatient.counters["control"].disconnects == 1


async def test_bundles_survive_the_server(server: NatsServer, patient: Exchange) -> None:
    small, large = bundle_of(100), bundle_of(5 * MIB)
    refs = [await patient.put("latents", bundle) for bundle in (small, large)]
    server.kill()
    server.start()
    assert [await patient.get(ref) for ref in refs] == [small, large]
    assert await patient.get(await patient.put("latents", large)) == large
    assert patient.connected
    assert patient.counters["bulk"].reconnects == 1


async def test_a_put_begun_while_the_server_is_down_completes_when_it_is_back(
    server: NatsServer, patient: Exchange
) -> None:
    server.stop()
    bundle = bundle_of(5 * MIB)
    put = asyncio.create_task(patient.put("latents", bundle))
    await asyncio.to_thread(server.start)
    assert await patient.get(await put) == bundle


async def test_a_put_and_a_get_outlive_a_restart_in_their_midst(server: NatsServer, patient: Exchange) -> None:
    bundle = bundle_of(64 * MIB)
    ref = await patient.put("latents", bundle)
    watcher = await nats.connect(server.url, allow_reconnect=False)
    chunks = await watcher.subscribe("tt.latents.>")
    await watcher.flush()
    put = asyncio.create_task(patient.put("latents", bundle))
    get = asyncio.create_task(patient.get(ref))
    await chunks.next_msg(timeout=5)
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    assert await get == bundle
    assert await patient.get(await put) == bundle
    assert patient.counters["bulk"].reconnects == 1


async def test_a_server_that_lost_its_store_gets_its_streams_back(
    server: NatsServer, patient: Exchange, tmp_path: Path
) -> None:
    bundle = bundle_of(2 * MIB)
    ref = await patient.put("latents", bundle)
    server.stop()
    shutil.rmtree(tmp_path / "jetstream")
    server.start()
    assert await patient.get(await patient.put("latents", bundle)) == bundle
    with pytest.raises(BundleGone):
        await patient.get(ref)


async def test_a_delete_that_does_not_persist_ends_with_its_connection(server: NatsServer, patient: Exchange) -> None:
    """By the time that there is another one, somebody else may have found the bundle, and need it."""
    ref = await patient.put("latents", bundle_of(100))
    server.pause()
    deleting = asyncio.create_task(patient.delete(ref, persist=False))
    await asyncio.wait([deleting], timeout=0.1)
    server.kill()
    with pytest.raises(ExchangeUnavailable):
        await deleting
    with pytest.raises(ExchangeUnavailable):
        await patient.delete(ref, persist=False)
    server.start()
    assert await patient.exists(ref)
    await patient.delete(ref, persist=False)
    assert not await patient.exists(ref)
