"""Keeps one service running: starts it, waits until it is ready, starts it again when it dies."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from triptych.supervisor.process import Process
from triptych.supervisor.process_log import ProcessLog
from triptych.supervisor.readiness import Readiness

# A bad flag or configuration: trying again would end the same way.
EXIT_BAD_CONFIG = 2


class ServiceState(Enum):
    """Where a service is in its life."""

    STOPPED = "stopped"
    STARTING = "starting"
    # Its server answers; it loads models, or looks for what it needs.
    LISTENING = "loading"
    READY = "ready"
    # It runs, and lacks what only a person can give it.
    BLOCKED = "blocked"
    WAITING = "waiting to restart"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Pauses double from `first_pause_s` to `max_pause_s`, and begin anew once it was ready for `healthy_s` seconds.

    A service that was never ready is given up after `max_first_tries` deaths.
    """

    enabled: bool = True
    first_pause_s: float = 0.5
    max_pause_s: float = 15.0
    healthy_s: float = 30.0
    max_first_tries: int = 3


class Service:
    """One supervised service. `address` and `pid` are those of the newest process."""

    def __init__(
        self,
        name: str,
        command: Callable[[], list[str]],
        readiness: Readiness,
        log: ProcessLog,
        policy: RestartPolicy,
        on_change: Callable[["Service"], None],
    ) -> None:
        self.name = name
        self.log = log
        self.policy = policy
        self.state = ServiceState.STOPPED
        self.address: str | None = None
        self.detail = ""
        self.start_count = 0
        self._command = command
        self._readiness = readiness
        self._on_change = on_change
        self._changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._process: Process | None = None
        self._was_ready = False
        self._ready_since: float | None = None

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return self._process.pid if self._process is not None else None

    def snapshot(self) -> tuple[str, str, str]:
        """Name, state and detail, in words."""
        return self.name, self.state.value, self.detail

    def start(self) -> None:
        """Start it, unless it is started; returns at once."""
        if self._task is None or self._task.done():
            self._stopping.clear()
            self.state = ServiceState.STARTING
            self._task = asyncio.create_task(self._run(), name=f"service-{self.name}")

    async def wait_for(self, *states: ServiceState) -> ServiceState:
        """Wait until it is in one of the states; which one."""
        while self.state not in states:
            self._changed.clear()
            await self._changed.wait()
        return self.state

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL after `grace_s` seconds. It stays down until `start`."""
        self._stopping.set()
        if self._process is not None:
            self._process.terminate()
        if self._task is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._task), grace_s)
        self.kill()
        await self._task

    def kill(self) -> None:
        """SIGKILL. It is started again by the policy."""
        if self._process is not None:
            self._process.kill()

    def recycle(self) -> None:
        """SIGTERM. It is started again by the policy."""
        if self._process is not None:
            self._process.terminate()

    def block(self, why: str) -> None:
        """Say what it lacks, until it is started again."""
        self._enter(ServiceState.BLOCKED, why)

    def reload(self) -> None:
        """SIGHUP: have it read its files again."""
        if self._process is not None:
            self._process.hang_up()

    def abort(self) -> None:
        """SIGKILL, and no other start; `stop` may be waiting."""
        self._stopping.set()
        self.kill()

    async def _run(self) -> None:
        pause_s = self.policy.first_pause_s
        deaths = 0
        while not self._stopping.is_set():
            self._ready_since = None
            try:
                code = await self._run_once()
            except OSError as error:
                self._enter(ServiceState.FAILED, f"cannot be started: {error}")
                return
            if self._stopping.is_set():
                break
            deaths += 1
            if self._is_hopeless(code, deaths):
                self._enter(ServiceState.FAILED, _ending(code))
                return
            if self._ready_since is not None and time.monotonic() - self._ready_since >= self.policy.healthy_s:
                pause_s = self.policy.first_pause_s
            self._enter(ServiceState.WAITING, f"{_ending(code)}; starts again in {pause_s:.1f} s")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            pause_s = min(2 * pause_s, self.policy.max_pause_s)
        self._enter(ServiceState.STOPPED, "")

    async def _run_once(self) -> int:
        """From start to death; the exit status."""
        self._enter(ServiceState.STARTING, "")
        self._readiness.expect()
        process = Process(self._command(), self.log)
        await process.start()
        self._process = process
        self.start_count += 1
        if self._stopping.is_set():  # came while it was being started
            process.terminate()
        watching = asyncio.create_task(self._watch())
        try:
            return await process.wait()
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            self._process = None

    async def _watch(self) -> None:
        self.address = await self._readiness.locate()
        self._enter(ServiceState.LISTENING, self.address)
        await self._readiness.serves(self.address)
        self._was_ready = True
        self._ready_since = time.monotonic()
        self._enter(ServiceState.READY, self.address)

    def _is_hopeless(self, code: int, deaths: int) -> bool:
        if not self.policy.enabled:
            return True
        return not self._was_ready and (code == EXIT_BAD_CONFIG or deaths >= self.policy.max_first_tries)

    def _enter(self, state: ServiceState, detail: str) -> None:
        self.state = state
        self.detail = detail
        self._changed.set()
        self._on_change(self)


def _ending(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"ended with status {code}"
