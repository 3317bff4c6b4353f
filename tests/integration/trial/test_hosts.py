"""Hosts of their own: a real connection between namespaces, late and cut as told. Needs root."""

import asyncio
import sys
import time

import pytest

from bench.trial.hosts import Hosts, HostsUnavailable, hosts
from bench.trial.switch import Link

PORT = 7000
ECHO = f"""
import asyncio
async def echo(reader, writer):
    while line := await reader.readline():
        writer.write(line)
async def main():
    server = await asyncio.start_server(echo, "0.0.0.0", {PORT})
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


async def test_a_connection_between_hosts_is_delayed_and_outlives_a_cut() -> None:
    try:
        async with hosts(["far"], seed=1) as made:
            await _talk(made)
    except HostsUnavailable as error:
        pytest.skip(str(error))


async def _talk(made: Hosts) -> None:
    command = made.command("far", [sys.executable, "-c", ECHO])
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    try:
        assert await server.stdout.readline() == b"ready\n"
        reader, writer = await asyncio.open_connection(made.addresses["far"], PORT)

        async def said(line: bytes) -> float:
            began = time.monotonic()
            writer.write(line)
            assert await reader.readline() == line
            return time.monotonic() - began

        await said(b"hello\n")
        made.set_link("far", Link(delay_s=0.2))
        # The setting itself is under way for a moment: what is said next may be too early for it.
        await said(b"set\n")
        assert await said(b"late\n") >= 0.4
        made.set_link("far", Link(up=False))
        unheard = asyncio.create_task(said(b"unheard\n"))
        done, _ = await asyncio.wait([unheard], timeout=1.0)
        assert not done
        made.set_link("far", Link())
        await asyncio.wait_for(unheard, 30.0)
        writer.close()
    finally:
        server.kill()
        await server.wait()
