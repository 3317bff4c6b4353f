"""The folder in which a suite keeps what it needs: its lock, its logs, NATS's streams."""

import os
import time
from pathlib import Path

from triptych.client.local_suite import LOCK_FILE, STATE_FILE, LocalSuite, try_lock
from triptych.supervisor.secrets import Secrets

# Somebody who looks whether a suite runs holds the lock for an instant.
LOCK_TRIES = 5
LOCK_PAUSE_S = 0.02


class SuiteRunning(Exception):
    """Another supervisor owns the folder; `suite` is what it says of itself, if it has said so."""

    def __init__(self, path: Path, suite: LocalSuite | None) -> None:
        super().__init__(f"a suite runs from {path} already")
        self.path = path
        self.suite = suite


class StateDir:
    """Owned by one supervisor at a time: from `acquire` to `release`, or to the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock: int | None = None

    @property
    def logs(self) -> Path:
        """One file a process."""
        return self.path / "logs"

    @property
    def run(self) -> Path:
        """Files that are of use while the suite runs only."""
        return self.path / "run"

    @property
    def nats(self) -> Path:
        """NATS's streams: jobs, events, latents, outputs."""
        return self.path / "nats"

    @property
    def secrets(self) -> Secrets:
        """Passwords and tokens, made at the first start."""
        return Secrets(self.path / "secrets")

    def acquire(self) -> None:
        """Make the folder, with what is missing in it, and own it.

        Raises `SuiteRunning`, or `OSError` where it cannot be made.
        """
        for folder in (self.path, self.logs, self.run, self.nats):
            folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not _lock(descriptor):
            os.close(descriptor)
            raise SuiteRunning(self.path, LocalSuite.read(self.path))
        self._lock = descriptor
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())

    def release(self) -> None:
        """Give the folder back, and take the note of the running suite away."""
        if self._lock is not None:
            (self.path / STATE_FILE).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None


def _lock(descriptor: int) -> bool:
    for _ in range(LOCK_TRIES):
        if try_lock(descriptor):
            return True
        time.sleep(LOCK_PAUSE_S)
    return False
