"""How much work lies paused at most."""

import asyncio

from services.stage.device_thread import DeviceThread
from services.stage.pause_bounds import PauseBounds


async def depths(count: int, *, in_forward: bool, max_count: int = 8, max_bytes: int | None = None) -> list[int]:
    """How much lay paused under each of `count` pieces of work, each of which ranks better than those before it.

    Each holds one byte while it lasts.
    """
    loop, tasks, seen = asyncio.get_running_loop(), list["asyncio.Task[None]"](), list[int]()
    depth = 0
    thread = DeviceThread("device", pause_bounds=PauseBounds(max_count, max_bytes, allocated=lambda: depth))
    thread.start()

    async def start_next() -> None:
        tasks.append(asyncio.create_task(thread.run((-float(len(tasks)), ""), work)))
        await asyncio.sleep(0)

    def work() -> None:
        nonlocal depth
        seen.append(depth)
        depth += 1
        if len(tasks) < count:
            asyncio.run_coroutine_threadsafe(start_next(), loop).result(10)
        thread.give_way(in_forward=in_forward)
        depth -= 1

    await start_next()
    while len(tasks) < count or not all(task.done() for task in tasks):
        await asyncio.wait(tasks)
    thread.close()
    return seen


async def test_no_more_than_so_much_work_lies_paused() -> None:
    assert await depths(6, in_forward=False, max_count=2) == [0, 1, 2, 2, 2, 2]
    assert await depths(3, in_forward=False, max_count=0) == [0, 0, 0]


async def test_full_of_activations_work_gives_way_between_steps_alone() -> None:
    assert await depths(5, in_forward=True, max_bytes=2) == [0, 1, 2, 2, 2]
    assert await depths(5, in_forward=False, max_bytes=2) == [0, 1, 2, 3, 4]
