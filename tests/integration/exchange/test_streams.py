"""Streams are created, or brought to their configuration, by any number of processes at once."""

import asyncio
import dataclasses
import sys

import nats
import pytest
from nats.js.api import DiscardPolicy

from tests.natsd import NatsServer
from triptych.exchange import Exchange, ExchangeConfig, StreamConflict
from triptych.exchange.streams import stream_specs

MIB = 1 << 20
OPEN = """
import asyncio, sys
from triptych.exchange import Exchange, ExchangeConfig

async def main():
    async with Exchange(ExchangeConfig(url=sys.argv[1])):
        pass

asyncio.run(main())
"""


async def test_every_stream_refuses_newcomers_is_bounded_and_read_directly(server: NatsServer) -> None:
    config = ExchangeConfig(url=server.url)
    async with Exchange(config) as exchange:
        found = {spec.name: await exchange.jetstream.stream_info(spec.name) for spec in stream_specs(config)}
    for spec in stream_specs(config):
        settings = found[spec.name].config
        assert settings.discard == DiscardPolicy.NEW
        assert settings.storage == "file"
        assert settings.max_bytes == spec.max_bytes > 0
        assert settings.max_age == spec.ttl_s > 0
        assert settings.allow_direct
        assert settings.allow_msg_ttl
    assert found["KV_conditioning"].config.max_age < found["CONDITIONING"].config.max_age


async def test_many_may_open_at_once(server: NatsServer) -> None:
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", OPEN, server.url, stderr=asyncio.subprocess.PIPE)
        for _ in range(2)
    ]
    here = [Exchange(ExchangeConfig(url=server.url)) for _ in range(4)]
    await asyncio.gather(*(exchange.__aenter__() for exchange in here))
    await asyncio.gather(*(exchange.__aexit__(None, None, None) for exchange in here))
    ended = [await process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ended


async def test_a_second_start_changes_nothing(server: NatsServer) -> None:
    async with Exchange(ExchangeConfig(url=server.url)):
        pass
    watcher = await nats.connect(server.url)
    updates = await watcher.subscribe("$JS.EVENT.ADVISORY.STREAM.>")
    await watcher.flush()
    async with Exchange(ExchangeConfig(url=server.url)):
        pass
    await watcher.flush()
    assert updates.pending_msgs == 0
    await watcher.close()


async def test_what_may_change_is_changed(server: NatsServer) -> None:
    config = ExchangeConfig(url=server.url)
    async with Exchange(config):
        pass
    changed = dataclasses.replace(config, latents_max_bytes=9 * MIB, events_ttl_s=60.0)
    async with Exchange(changed) as exchange:
        latents = await exchange.jetstream.stream_info("LATENTS")
        events = await exchange.jetstream.stream_info("EVENTS")
    assert (latents.config.max_bytes, events.config.max_age) == (9 * MIB, 60.0)


async def test_what_may_not_change_is_named(server: NatsServer) -> None:
    async with Exchange(ExchangeConfig(url=server.url)):
        pass
    with pytest.raises(StreamConflict, match=r"CONDITIONING.*storage") as caught:
        async with Exchange(ExchangeConfig(url=server.url, storage="memory")):
            pass
    assert caught.value.stream == "CONDITIONING"


async def test_limits_beyond_the_server_are_named(server: NatsServer) -> None:
    with pytest.raises(StreamConflict, match=r"LATENTS.*insufficient storage"):
        async with Exchange(ExchangeConfig(url=server.url, latents_max_bytes=1 << 50)):
            pass
