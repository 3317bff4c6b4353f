"""Stage workers as real processes, for tests that talk to them directly."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import nats.errors

from triptych.exchange import Exchange
from triptych.v1.worker_pb2 import WORKER_STATE_READY, WorkerHeartbeat, WorkerState

READY_TIMEOUT_S = 90.0


class WorkerProcess:
    """One worker of one stage ("encoder", "denoiser", "decoder"); its log goes to a file in `folder`."""

    def __init__(self, stage: str, worker_id: str, catalog: Path, nats_url: str, folder: Path, *flags: str) -> None:
        self.worker_id = worker_id
        self.log = folder / f"{worker_id}.log"
        self.address = ""
        self._command = [
            *(sys.executable, "-m", f"services.{stage}", f"--worker_id={worker_id}", f"--catalog={catalog}"),
            *(f"--exchange.url={nats_url}", "--threads=1", "--device=cpu", *flags),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id, once it is started."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the process; it is ready when `ready` returns."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    async def ready(self, exchange: Exchange, state: WorkerState.ValueType = WORKER_STATE_READY) -> WorkerHeartbeat:
        """The first heartbeat that says READY, or another state. Raises `RuntimeError` with the log if none does."""
        assert self._process is not None
        subscription = await exchange.control.subscribe(f"triptych.v1.heartbeat.*.{self.worker_id}")
        deadline = time.monotonic() + READY_TIMEOUT_S
        try:
            while self._process.poll() is None and time.monotonic() < deadline:
                with contextlib.suppress(nats.errors.TimeoutError):
                    beat = WorkerHeartbeat.FromString((await subscription.next_msg(timeout=1.0)).data)
                    if beat.state == state:
                        self.address = beat.address
                        return beat
        finally:
            await subscription.unsubscribe()
        raise RuntimeError(f"{self.worker_id} is not {WorkerState.Name(state)}:\n{self.log.read_text()}")

    def terminate(self) -> int:
        """SIGTERM; the exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(timeout=60)

    def wait(self) -> int:
        """Wait until it ends by itself; the exit status."""
        assert self._process is not None
        return self._process.wait(timeout=60)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(timeout=10)
