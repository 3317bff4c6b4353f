"""Work that wants the device to itself."""

import asyncio
import threading

from services.stage.device_thread import DeviceThread


async def test_work_that_wants_to_be_alone_neither_nests_nor_is_nested_in(thread: DeviceThread) -> None:
    order: list[str] = []
    here, go = threading.Event(), threading.Event()

    def work(name: str) -> None:
        order.append(f"{name} begins")
        here.set()
        go.wait(10)
        thread.give_way()
        order.append(f"{name} ends")

    outer = asyncio.create_task(thread.run((5.0, "outer"), lambda: work("outer")))
    await asyncio.to_thread(here.wait, 10)
    alone = asyncio.create_task(thread.run((2.0, "alone"), lambda: work("alone"), alone=True))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(outer, alone)
    assert order == ["outer begins", "outer ends", "alone begins", "alone ends"]
    order.clear()
    here.clear()
    go.clear()
    alone = asyncio.create_task(thread.run((5.0, "alone"), lambda: work("alone"), alone=True))
    await asyncio.to_thread(here.wait, 10)
    better = asyncio.create_task(thread.run((1.0, "better"), lambda: work("better")))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(alone, better)
    assert order == ["alone begins", "alone ends", "better begins", "better ends"]


async def test_what_wants_to_be_alone_holds_back_nothing_that_ranks_behind_it(thread: DeviceThread) -> None:
    order: list[str] = []
    here, go = threading.Event(), threading.Event()

    def long() -> None:
        here.set()
        go.wait(10)
        thread.give_way()
        order.append("long ends")

    running = asyncio.create_task(thread.run((9.0, "long"), long))
    await asyncio.to_thread(here.wait, 10)
    alone = asyncio.create_task(thread.run((2.0, "alone"), lambda: order.append("alone"), alone=True))
    short = asyncio.create_task(thread.run((3.0, "short"), lambda: order.append("short")))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(running, alone, short)
    assert order == ["short", "long ends", "alone"]
