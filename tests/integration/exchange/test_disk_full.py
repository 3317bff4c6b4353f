"""The disk of the server's store is full: who writes is told at once, and what was stored is there afterwards."""

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.integration.exchange.payloads import MIB, bundle_of
from tests.natsd import NatsServer
from tests.small_disk import SmallDisk, small_disk
from triptych.exchange import DiskFull, Exchange, ExchangeConfig
from triptych.exchange.streams import stream_specs

STREAMS = [spec.name for spec in stream_specs(ExchangeConfig())]
# Answers otherwise take `answer_timeout_s`, ten seconds.
SOON_S = 4.0
# More than what is left of a page.
LARGE = 64 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 48) as disk:
        yield disk


@pytest.fixture
def server(disk: SmallDisk) -> Iterator[NatsServer]:
    server = NatsServer(disk.path)
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def exchange(server: NatsServer) -> AsyncIterator[Exchange]:
    async with Exchange(ExchangeConfig(url=server.url)) as exchange:
        yield exchange


@pytest.mark.parametrize("byte_size", [LARGE, 8 * MIB])
@pytest.mark.parametrize("store", ["conditioning", "latents", "outputs"])
async def test_a_put_is_told_and_what_was_put_before_is_kept(
    store: str, byte_size: int, disk: SmallDisk, server: NatsServer, exchange: Exchange
) -> None:
    bundle = bundle_of(byte_size)
    before = await exchange.put(store, bundle)
    disk.fill()
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(DiskFull, match="free some of it"):
            await exchange.put(store, bundle)
        assert time.monotonic() - began < SOON_S
    assert await exchange.get(before) == bundle
    disk.free()
    server.stop()
    server.start()
    assert await exchange.get(before) == bundle
    assert await exchange.get(await exchange.put(store, bundle)) == bundle


@pytest.mark.parametrize("stream", STREAMS)
async def test_a_message_of_the_owners_own_is_told(
    stream: str, disk: SmallDisk, server: NatsServer, exchange: Exchange
) -> None:
    subject = next(spec.subject for spec in stream_specs(ExchangeConfig()) if spec.name == stream)
    subject = f"{subject.removesuffix('.*').removesuffix('.>')}.one"
    disk.fill()
    began = time.monotonic()
    with pytest.raises(DiskFull):
        await exchange.written(stream, exchange.jetstream.publish(subject, bytes(LARGE)))
    with pytest.raises(DiskFull):
        await exchange.check_writable(stream)
    assert time.monotonic() - began < SOON_S
    disk.free()
    server.stop()
    server.start()
    await exchange.check_writable(stream)
    assert (await exchange.written(stream, exchange.jetstream.publish(subject, bytes(LARGE)))).stream == stream
