"""Strikes the processes of a suite as planned, and notes how long each takes to be back."""

import asyncio
import contextlib
import os
import signal
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from bench.trial.faults import LEADER, Fault, FaultKind
from triptych.supervisor import Service, ServiceState

GRACE_S = 20.0
_NOT_READY = frozenset(ServiceState) - {ServiceState.READY}
# A process that is not back by then is taken note of, not waited for.
BACK_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault as it was carried out, on the processes `struck`, at a time in seconds since the epoch.

    `back_s`: until all of them were ready; None: not in time, or, where `struck` is empty, no leader was to be found.
    """

    fault: Fault
    struck: tuple[str, ...]
    at_s: float
    back_s: float | None


class Saboteur:
    """One fault at a time on each process; faults on different ones overlap as they come.

    `find_leader` names the router that leads, as soon as one is known to.
    """

    def __init__(
        self,
        processes: dict[str, Service],
        find_leader: Callable[[], Awaitable[str]],
        told: Callable[[str], None],
    ) -> None:
        self.strikes: list[Strike] = []
        self._processes = processes
        self._find_leader = find_leader
        self._told = told
        self._busy: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def run(self, faults: Iterable[Fault]) -> None:
        """Carry the plan out; returns when everything is up again. No process stays stopped, whatever happens."""
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(fault.after_s)
                group.create_task(self._strike(fault))

    async def _strike(self, fault: Fault) -> None:
        async with AsyncExitStack() as stack:
            names: list[str] = []
            began_s, began = time.time(), time.monotonic()
            back_s = None
            with contextlib.suppress(TimeoutError):
                names = await self._seize(fault, stack)
                began_s, began = time.time(), time.monotonic()
                self._told(f"{_in_words(fault)} {f'({names[0]})' if LEADER in fault.targets else ''}")
                async with asyncio.timeout(BACK_WITHIN_S):
                    await asyncio.gather(*(self._perform(fault, self._processes[name]) for name in names))
                    back_s = time.monotonic() - began
            if back_s is None:
                self._told(f"{_in_words(fault)}: {'not back' if names else 'no leader'} in {BACK_WITHIN_S:.0f} s")
            self.strikes.append(Strike(fault, tuple(names), began_s, back_s))

    async def _seize(self, fault: Fault, stack: AsyncExitStack) -> list[str]:
        """Wait until no other fault is at work on the processes; who they are.

        Raises `TimeoutError` if there is no leader to strike.
        """
        if LEADER not in fault.targets:
            for name in sorted(fault.targets):
                await stack.enter_async_context(self._busy[name])
            return list(fault.targets)
        async with asyncio.timeout(BACK_WITHIN_S):
            while True:
                name = await self._find_leader()
                async with AsyncExitStack() as tried:
                    await tried.enter_async_context(self._busy[name])
                    # It may have lost the lease while another fault was at work on it.
                    if await self._find_leader() == name:
                        await stack.enter_async_context(tried.pop_all())
                        return [name]

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


def _in_words(fault: Fault) -> str:
    return f"{fault.kind} {' '.join(fault.targets)} {fault.hold_s or ''}".rstrip()
