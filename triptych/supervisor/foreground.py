"""Runs a suite until a signal ends it."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

from triptych.supervisor.config import SuiteConfig
from triptych.supervisor.service import Service
from triptych.supervisor.suite import Suite
from triptych.tasks import either

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_suite(
    config: SuiteConfig,
    *,
    on_change: Callable[[Service], None],
    on_ready: Callable[[Suite], None],
    on_ending: Callable[[], None],
) -> None:
    """Start a suite, and drain it at the first SIGINT, SIGTERM or SIGHUP; the second kills what still drains.

    `on_ending` is called at that first signal. Raises what `Suite.start` raises. No process is left when this returns.
    """
    suite = Suite(config, on_change=on_change)
    with _signals() as (first, second):
        starting = asyncio.create_task(suite.start())
        try:
            await either(starting, first)
            if starting.done():
                await starting
                on_ready(suite)
                await first.wait()
        finally:
            if first.is_set():
                on_ending()
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await starting
            stopping = asyncio.create_task(suite.stop())
            await either(stopping, second)
            suite.kill_all()
            await stopping


@contextlib.contextmanager
def _signals() -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """Events for the first and for the second signal."""
    loop = asyncio.get_running_loop()
    first, second = asyncio.Event(), asyncio.Event()

    def take() -> None:
        (second if first.is_set() else first).set()

    for number in ENDING:
        loop.add_signal_handler(number, take)
    try:
        yield first, second
    finally:
        for number in ENDING:
            loop.remove_signal_handler(number)
