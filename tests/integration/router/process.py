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
    """`python -m services.router`; its log tells when it is ready, and where."""

    def __init__(self, nats_url: str, address_file: Path, **flags: str) -> None:
        self.address = ""
        self.address_file = address_file
        self._nats_url = nats_url
        self._flags = flags
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
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
            **self._flags,
        }
        command = [sys.executable, "-m", "services.router", *(f"--{name}={value}" for name, value in flags.items())]
        self._process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        self._reading = asyncio.create_task(self._read())
        await asyncio.wait_for(self._ready.wait(), WAIT_S)
        self.address = self.address_file.read_text()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.returncode is None:
            await self.end(signal.SIGKILL)

    async def end(self, number: int) -> int:
        """Send a signal and wait for the end; returns the exit status."""
        assert self._process is not None
        assert self._reading is not None
        os.kill(self._process.pid, number)
        return await self.ended()

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
                self.log.append(json.loads(line))
                if self.log[-1]["event"] == "router_ready":
                    self._ready.set()
            else:
                sys.stderr.write(line.decode())
        self._ready.set()
