"""Work that is cancelled: while it waits, as it is chosen, while it runs, while it lies paused."""

import asyncio
import threading

from services.stage.device_thread import DeviceThread
from services.stage.turns import Unit
from tests.unit.stage.occupied import occupied


async def test_cancelled_work_that_waits_never_runs(thread: DeviceThread) -> None:
    task, release = await occupied(thread)
    ran: list[int] = []
    waiting = asyncio.create_task(thread.run((1.0, "x"), lambda: ran.append(1)))
    await asyncio.sleep(0)
    assert thread.waiting_count == 1
    waiting.cancel()
    await asyncio.wait([waiting])
    assert thread.waiting_count == 0
    release.set()
    await task
    assert ran == []


async def test_cancelled_work_that_runs_ends_where_it_gives_way(thread: DeviceThread) -> None:
    here, go, ended = threading.Event(), threading.Event(), threading.Event()
    after: list[int] = []

    def work() -> None:
        here.set()
        go.wait(10)
        try:
            thread.give_way()
            after.append(1)
        finally:
            ended.set()

    task = asyncio.create_task(thread.run((1.0, "x"), work))
    await asyncio.to_thread(here.wait, 10)
    task.cancel()
    await asyncio.wait([task])
    go.set()
    await asyncio.to_thread(ended.wait, 10)
    assert after == []
    assert await thread.run((1.0, "y"), lambda: 7) == 7


class Picked(DeviceThread):
    """It waits between choosing work and starting it."""

    def __init__(self) -> None:
        super().__init__("device")
        self.picked, self.go = threading.Event(), threading.Event()

    def _take_turn(self, unit: Unit) -> None:
        self.picked.set()
        self.go.wait(10)
        super()._take_turn(unit)


async def test_work_that_is_cancelled_just_as_it_is_chosen_never_runs_and_the_thread_lives_on() -> None:
    thread = Picked()
    thread.start()
    ran: list[str] = []
    task = asyncio.create_task(thread.run((1.0, "cancelled"), lambda: ran.append("cancelled")))
    await asyncio.to_thread(thread.picked.wait, 10)
    task.cancel()
    await asyncio.wait([task])
    thread.go.set()
    await asyncio.wait_for(thread.run((1.0, "next"), lambda: ran.append("next")), 10)
    assert ran == ["next"]
    assert thread.started_count == thread.waiting_count == 0
    thread.close()


async def test_paused_work_that_is_cancelled_ends_before_what_runs(thread: DeviceThread) -> None:
    order: list[str] = []
    paused, go = threading.Event(), threading.Event()
    here = threading.Event()

    def long() -> None:
        try:
            here.set()
            paused.wait(10)
            thread.give_way()
        finally:
            order.append("long ends")

    def short() -> None:
        go.wait(10)
        thread.give_way()
        order.append("short ends")

    running = asyncio.create_task(thread.run((9.0, "long"), long, on_pause=lambda _: paused.set()))
    await asyncio.to_thread(here.wait, 10)
    better = asyncio.create_task(thread.run((1.0, "short"), short))
    await asyncio.sleep(0)
    paused.set()
    running.cancel()
    await asyncio.wait([running])
    go.set()
    await better
    assert order == ["long ends", "short ends"]
