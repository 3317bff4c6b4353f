"""A real nats-server for the tests."""

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import IO

from triptych.address import Address
from triptych.exchange.server import command_line, is_ready, listening_address


class NatsServer:
    """A nats-server of the tests' own, on a free port. After `kill` or `stop`, `start` keeps port and store."""

    def __init__(self, store_dir: Path, config: Path | None = None, host: str = "127.0.0.1") -> None:
        self._store_dir = store_dir
        self._config = config
        self._address = Address(host, 0)
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"nats://{self._address}"

    def start(self) -> None:
        """Start, and return when clients are served, as told by the server's log."""
        host, port = self._address.host, self._address.port
        command = command_line(self._store_dir, host=host, port=port, config=self._config)
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        log = self._process.stderr
        assert log is not None
        lines = []
        for line in log:
            lines.append(line)
            self._address = listening_address(line) or self._address
            if is_ready(line):
                # A full pipe would stop the server.
                threading.Thread(target=_drain, args=(log,), daemon=True).start()
                return
        raise RuntimeError("nats-server ended: " + "".join(lines))

    def stop(self) -> None:
        """Shut down in order."""
        if self._process is not None:
            self._process.terminate()
            self._reap()

    def pause(self) -> None:
        """Let it run no more, with its connections open, until it is killed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def kill(self) -> None:
        """End at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def _reap(self) -> None:
        assert self._process is not None
        self._process.wait(timeout=20)
        self._process = None


def _drain(log: IO[str]) -> None:
    for _ in log:
        pass
