"""Strikes the processes of a suite as planned, and notes how long each takes to be back."""

import asyncio
import contextlib
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from bench.trial.faults import Fault, FaultKind
from triptych.supervisor import Service, ServiceState

GRACE_S = 20.0
_NOT_READY = frozenset(ServiceState) - {ServiceState.READY}
# A process that is not back by then is taken note of, not waited for.
BACK_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault as it was carried out. `back_s`: until all struck processes were ready; None: not in time."""

    fault: Fault
    at_s: float
    back_s: float | None


class Saboteur:
    """One fault at a time on each process; faults on different ones overlap as they come."""

    def __init__(self, processes: dict[str, Service], told: Callable[[str], None]) -> None:
        self.strikes: list[Strike] = []
        self._processes = processes
        self._told = told
        self._busy: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def run(self, faults: Sequence[Fault]) -> None:
        """Carry the plan out; returns when everything is up again. No process stays stopped, whatever happens."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(began + fault.at_s - time.monotonic())
                group.create_task(self._strike(fault))

    async def _strike(self, fault: Fault) -> None:
        async with AsyncExitStack() as stack:
            for name in sorted(fault.targets):
                await stack.enter_async_context(self._busy[name])
            began = time.monotonic()
            self._told(f"{fault.kind} {' '.join(fault.targets)} {fault.hold_s or ''}")
            services = [self._processes[name] for name in fault.targets]
            back_s = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BACK_WITHIN_S):
                    await asyncio.gather(*(self._perform(fault, service) for service in services))
                    back_s = time.monotonic() - began
            if back_s is None:
                self._told(f"{fault.kind} {' '.join(fault.targets)}: not back in {BACK_WITHIN_S:.0f} s")
            self.strikes.append(Strike(fault, began, back_s))

    async def _perform(self, fault: Fault, service: Service) -> None:
        match fault.kind:
            case FaultKind.FREEZE | FaultKind.FREEZE_LONG:
                await _freeze(service, fault.hold_s)
            case FaultKind.DRAIN:
                await service.stop(GRACE_S)
                service.start()
            case _ if service.pid is not None:
                service.kill()
                await service.wait_for(*_NOT_READY)
        if await service.wait_for(ServiceState.READY, ServiceState.FAILED) is ServiceState.FAILED:
            service.start()
            await service.wait_for(ServiceState.READY)


async def _freeze(service: Service, hold_s: float) -> None:
    pid = service.pid
    if pid is None:
        return
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(hold_s)
    finally:
        if service.pid == pid:
            os.kill(pid, signal.SIGCONT)
