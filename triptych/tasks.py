"""Waiting for tasks: to their end, side by side, and for one or an event."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from triptych.tracebacks import clear_frames

T = TypeVar("T")

# How long a cancellation may take before it is repeated.
_AGAIN_S = 0.5


async def end(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel them, and return when all are over, whatever came of them.

    Before Python 3.12 `asyncio.wait_for` loses a cancellation that comes just as what it waits for is done
    (bpo-42130), and a task that loops goes on: so they are cancelled until they are over.
    """
    cancelled = False
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        try:
            _, pending = await asyncio.wait(pending, timeout=_AGAIN_S)
        except asyncio.CancelledError:
            cancelled = True
            pending = {task for task in pending if not task.done()}
    if cancelled:
        raise asyncio.CancelledError


def let_go(task: "asyncio.Task[Any]") -> None:
    """Of a task that is over and whose end is known: let what it worked on go.

    Its error, or its cancellation, keeps it by the frames of its traceback, which keep the task.
    """
    try:
        task.result()
    except BaseException as error:  # noqa: BLE001 - who waited for it has seen it
        clear_frames(error)


async def run_together(*works: Coroutine[Any, Any, None]) -> None:
    """Run them side by side until one fails, whose error is raised, or all are done. None goes on after this."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        await end(*tasks)


async def either(work: "asyncio.Task[Any]", event: asyncio.Event) -> None:
    """Wait until the work is done, whatever came of it, or the event is set."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


async def checked(work: Awaitable[T], check: Callable[[], Awaitable[None]], every_s: float) -> T:
    """The work's result. `check` is called every so many seconds until there is one: what it raises ends the work."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait([task], timeout=every_s))[0]:
            await check()
        return task.result()
    finally:
        task.cancel()
