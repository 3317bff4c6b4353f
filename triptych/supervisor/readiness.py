"""When a process that was started can be used."""

import asyncio
from pathlib import Path
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from triptych.address import Address
from triptych.exchange import server as nats_server
from triptych.rpc import Credentials, open_channel
from triptych.rpc.responses import responses
from triptych.supervisor.process_log import ProcessLog
from triptych.tls import TlsFiles

LOOK_EVERY_S = 0.05
SERVING = health_pb2.HealthCheckResponse.SERVING


class Readiness(Protocol):
    """Finds out where a process listens, and waits until it serves. Both wait for ever if it never does."""

    def expect(self) -> None:
        """Forget what an earlier process said; called before each start."""

    async def locate(self) -> str:
        """`host:port`, once it listens there."""

    async def serves(self, address: str) -> None:
        """Wait until it serves there."""


class NatsReadiness:
    """Reads a nats-server's log. `unwritable` is set while that says that a stream cannot be written."""

    def __init__(self, log: ProcessLog, unwritable: asyncio.Event) -> None:
        self._log = log
        self._unwritable = unwritable
        self._address: Address | None = None
        self._listening = asyncio.Event()
        self._ready = asyncio.Event()

    def expect(self) -> None:
        """Listen to the log of the server that starts next."""
        self._listening.clear()
        self._ready.clear()
        self._unwritable.clear()
        self._log.on_line = self._read

    async def locate(self) -> str:
        """Where clients will connect."""
        await self._listening.wait()
        return str(self._address)

    async def serves(self, address: str) -> None:
        """Wait for the line that says so."""
        await self._ready.wait()

    def _read(self, line: str) -> None:
        address = nats_server.listening_address(line)
        if address is not None:
            self._address = address
            self._listening.set()
        if nats_server.is_ready(line):
            self._ready.set()
        if nats_server.is_unwritable(line):
            self._unwritable.set()


class ServiceReadiness:
    """Waits for a service's address file, then for its health to be SERVING."""

    def __init__(self, address_file: Path, tls: TlsFiles | None = None, server_name: str = "localhost") -> None:
        self._address_file = address_file
        self._credentials = Credentials(tls=tls, server_name=server_name)

    def expect(self) -> None:
        """Remove the file of an earlier process."""
        self._address_file.unlink(missing_ok=True)

    async def locate(self) -> str:
        """Where the service answers."""
        while not (address := self._read()):  # noqa: ASYNC110 - another process writes the file
            await asyncio.sleep(LOOK_EVERY_S)
        return address

    async def serves(self, address: str) -> None:
        """Wait for its health."""
        async with open_channel(address, self._credentials) as channel:
            while not await _serves(channel):  # noqa: ASYNC110 - a pause between two calls
                await asyncio.sleep(LOOK_EVERY_S)

    def _read(self) -> str:
        try:
            return self._address_file.read_text(encoding="utf-8").strip()
        except OSError:
            return ""


async def _serves(channel: grpc.aio.Channel) -> bool:
    """Follow the health of a server until it is SERVING; False if the server went away."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    try:
        async with responses(stub.Watch(health_pb2.HealthCheckRequest())) as answers:
            async for answer in answers:
                if answer.status == SERVING:
                    return True
    except grpc.aio.AioRpcError:
        return False
    return False
