"""Runs what blocks in a thread that keeps no process from ending, unlike those of asyncio's own executor."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


async def beside(function: Callable[[], _Result]) -> _Result:
    """The function's result. It is not stopped if nobody waits for it any longer."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()

    def tell(result: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: None if future.done() else result())

    def run() -> None:
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - the edge of the thread
            failure = error
            tell(lambda: future.set_exception(failure))
        else:
            tell(lambda: future.set_result(result))

    threading.Thread(target=run, name="beside", daemon=True).start()
    return await future
