"""One operating-system process that ends with its supervisor."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

from triptych.supervisor.process_log import ProcessLog

LAUNCHER = Path(__file__).with_name("child.py")
READ_BYTES = 64 * 1024


class Process:
    """A command that runs in a session of its own, so that a Ctrl-C at the terminal does not reach it.

    Its output goes to the log.
    """

    def __init__(self, command: list[str], log: ProcessLog) -> None:
        self._command = command
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Valid after `start`."""
        assert self._process is not None, "started"
        return self._process.pid

    async def start(self) -> None:
        """Start it. Raises `OSError`."""
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid())),
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read())

    async def wait(self) -> int:
        """Its exit status, negative for a signal, once its output has been read."""
        assert self._process is not None, "started"
        assert self._reading is not None, "started"
        code = await self._process.wait()
        await asyncio.shield(self._reading)
        return code

    def terminate(self) -> None:
        """Ask it to end; nothing if it has."""
        self._signal(signal.SIGTERM)

    def hang_up(self) -> None:
        """Ask it to read its files again; nothing if it has ended."""
        self._signal(signal.SIGHUP)

    def _signal(self, number: int) -> None:
        if self._running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it and whatever it started, at once."""
        if self._running():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _running(self) -> bool:
        # Once its end has been seen, the number may belong to another process.
        return self._process is not None and self._process.returncode is None

    async def _read(self) -> None:
        assert self._process is not None, "started"
        output = self._process.stdout
        assert output is not None, "a pipe was asked for"
        while data := await output.read(READ_BYTES):
            self._log.write(data)
        self._log.finish_line()
        self._log.close()
