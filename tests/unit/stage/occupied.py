"""A device thread that is kept busy while a test puts work before it."""

import asyncio
import threading

from services.stage.device_thread import DeviceThread


async def occupied(thread: DeviceThread) -> tuple[asyncio.Task[None], threading.Event]:
    """Work that holds the thread until the event is set."""
    running, release = threading.Event(), threading.Event()

    def hold() -> None:
        running.set()
        release.wait(10)

    task = asyncio.create_task(thread.run((0.0, "hold"), hold))
    await asyncio.to_thread(running.wait, 10)
    return task, release
