"""A router as a process of its own, which can be killed."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.integration.router.bench import CATALOG

WAIT_S = 20.0


class RouterProcess:
    """`python -m services.router`; its log tells when it is ready, and where.

    Entering waits until it has `begun`: "router_ready" when it leads, "router_standing_by" for one that waits.
    """

    def __init__(self, nats_url: str, address_file: Path, *, begun: str = "router_ready", **flags: str) -> None:
        self.address = ""
        self.address_file = address_file
        self._nats_url = nats_url
        self._flags = flags
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._begun = begun
        self._logged = asyncio.Condition()
        self.log: list[dict[str, Any]] = []

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def __aenter__(self) -> Self:
        flags = {
            "listen": "127.0.0.1:0",
            "address_file": str(self.address_file),
            "catalog": str(CATALOG),
            "exchange.url": self._nats_url,
            "drain_seconds": "0.2",
            "exchange.leader_ttl_s": "1",
            **self._flags,
        }
        command = [sys.executable, "-m", "services.router", *(f"--{name}={value}" for name, value in flags.items())]
        self._process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        self._reading = asyncio.create_task(self._read())
        await self.until(self._begun)
        self.address = self.address_file.read_text()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.returncode is None:
            await self.end(signal.SIGKILL)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    async def end(self, number: int) -> int:
        """Send a signal and wait for the end; returns the exit status."""
        self.signal(number)
        return await self.ended()

    async def until(self, event: str, times: int = 1) -> None:
        """Wait until it has logged an event so many times."""
        async with asyncio.timeout(WAIT_S), self._logged:
            await self._logged.wait_for(lambda: self.logged(event) >= times)

    def logged(self, event: str) -> int:
        """How many times it has logged an event."""
        return sum(line["event"] == event for line in self.log)

    async def ended(self) -> int:
        """Wait for the end; returns the exit status."""
        assert self._process is not None
        assert self._reading is not None
        status = await asyncio.wait_for(self._process.wait(), WAIT_S)
        await self._reading
        return status

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            if line.startswith(b"{"):
                async with self._logged:
                    self.log.append(json.loads(line))
                    self._logged.notify_all()
            else:
                sys.stderr.write(line.decode())
