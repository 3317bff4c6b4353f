"""The device thread: one piece of work at a time, best rank first, switched where work gives way."""

import asyncio
import math
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.stage.device_thread import DeviceThread, TooMuchWaits
from services.stage.turns import Unit
from tests.unit.stage.occupied import occupied


async def test_waiting_work_runs_by_rank_then_by_job(thread: DeviceThread) -> None:
    task, release = await occupied(thread)
    order: list[str] = []
    ranks = [(3.0, "c"), (1.0, "b"), (1.0, "a"), (2.0, "d")]
    work = [asyncio.create_task(thread.run(rank, lambda rank=rank: order.append(rank[1]))) for rank in ranks]
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(task, *work)
    assert order == ["a", "b", "d", "c"]


async def test_work_gives_way_to_better_ranks_only(thread: DeviceThread) -> None:
    order: list[str] = []
    here, go = threading.Event(), threading.Event()

    def long() -> None:
        order.append("long begins")
        here.set()
        go.wait(10)
        thread.give_way()
        order.append("long ends")

    task = asyncio.create_task(thread.run((5.0, "long"), long))
    await asyncio.to_thread(here.wait, 10)
    worse = asyncio.create_task(thread.run((6.0, "worse"), lambda: order.append("worse")))
    better = asyncio.create_task(thread.run((4.0, "better"), lambda: order.append("better")))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(task, worse, better)
    assert order == ["long begins", "better", "long ends", "worse"]


async def test_the_clock_stands_still_while_work_is_interrupted(thread: DeviceThread) -> None:
    here, go = threading.Event(), threading.Event()
    spent: list[float] = []

    def long() -> None:
        here.set()
        go.wait(10)
        began = thread.clock_s()
        thread.give_way()
        spent.append(thread.clock_s() - began)

    task = asyncio.create_task(thread.run((5.0, "long"), long))
    await asyncio.to_thread(here.wait, 10)
    pause = threading.Event()
    better = asyncio.create_task(thread.run((1.0, "better"), lambda: pause.wait(0.3)))
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(task, better)
    assert spent[0] < 0.15


class Dying(DeviceThread):
    """It has a flaw."""

    def _take_turn(self, unit: Unit) -> None:
        raise ValueError("a flaw")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_thread_that_has_died_is_silent_for_ever() -> None:
    thread = Dying("device")
    assert thread.silent_s == 0
    thread.start()
    task = asyncio.create_task(thread.run((1.0, "stranded"), lambda: None))
    await asyncio.sleep(0)
    await asyncio.to_thread(thread._thread.join, 10)
    assert thread.silent_s == math.inf
    task.cancel()


async def test_an_error_is_the_callers_and_the_thread_lives_on(thread: DeviceThread) -> None:
    def fail() -> None:
        raise torch.OutOfMemoryError("no more")

    with pytest.raises(torch.OutOfMemoryError, match="no more"):
        await thread.run((1.0, "x"), fail)
    assert await thread.run((1.0, "y"), lambda: torch.is_grad_enabled()) is False


async def test_too_much_waiting_work_is_refused(thread: DeviceThread) -> None:
    task, release = await occupied(thread)
    waiting = [asyncio.create_task(thread.run((1.0, str(index)), lambda: None)) for index in range(8)]
    await asyncio.sleep(0)
    with pytest.raises(TooMuchWaits):
        await thread.run((1.0, "one too many"), lambda: None)
    release.set()
    await asyncio.gather(task, *waiting)


async def test_closing_stops_what_waits() -> None:
    thread = DeviceThread("device")
    thread.start()
    task, release = await occupied(thread)
    waiting = asyncio.create_task(thread.run((1.0, "x"), lambda: None))
    await asyncio.sleep(0)
    thread.close()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    release.set()
    await task


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_at_every_boundary_the_best_rank_runs(ranks: list[int]) -> None:
    """Jobs of three steps each, all waiting: a step only ever runs while no better rank waits."""

    async def scenario() -> list[tuple[float, str]]:
        thread = DeviceThread("device")
        thread.start()
        task, release = await occupied(thread)
        steps: list[tuple[float, str]] = []

        def job(rank: tuple[float, str]) -> None:
            for _ in range(3):
                thread.give_way()
                steps.append(rank)

        jobs = [(float(rank), f"job-{index}") for index, rank in enumerate(ranks)]
        work = [asyncio.create_task(thread.run(rank, lambda rank=rank: job(rank))) for rank in jobs]
        await asyncio.sleep(0)
        release.set()
        await asyncio.gather(task, *work)
        thread.close()
        return steps

    steps = asyncio.run(scenario())
    assert steps == sorted(steps)
    assert len(steps) == 3 * len(ranks)


async def test_interrupted_work_is_told_once_a_pause(thread: DeviceThread) -> None:
    told: list[bool] = []
    here, go = threading.Event(), threading.Event()

    def long() -> None:
        here.set()
        go.wait(10)
        thread.give_way()
        thread.give_way()

    task = asyncio.create_task(thread.run((5.0, "long"), long, on_pause=told.append))
    await asyncio.to_thread(here.wait, 10)
    better = [asyncio.create_task(thread.run((1.0, str(index)), lambda: None)) for index in range(3)]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(task, *better)
    assert told == [True, False]


async def test_a_rank_may_change_while_work_runs(thread: DeviceThread) -> None:
    order: list[str] = []
    here, go = threading.Event(), threading.Event()

    def long() -> None:
        here.set()
        go.wait(10)
        thread.give_way()
        order.append("long")

    running = asyncio.create_task(thread.run((1.0, "long"), long))
    await asyncio.to_thread(here.wait, 10)
    other = asyncio.create_task(thread.run((2.0, "other"), lambda: order.append("other")))
    await asyncio.sleep(0)
    thread.rerank("long", 3.0)
    go.set()
    await asyncio.gather(running, other)
    assert order == ["other", "long"]
