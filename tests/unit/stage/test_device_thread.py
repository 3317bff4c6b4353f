"""The device thread: one piece of work at a time, best rank first, switched where work gives way."""

import asyncio
import math
import threading
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.stage.device_thread import DeviceThread, TooMuchWaits
from services.stage.pause_bounds import PauseBounds
from services.stage.turns import Unit


@pytest.fixture
def thread() -> Iterator[DeviceThread]:
    thread = DeviceThread("device", max_waiting=8)
    thread.start()
    yield thread
    thread.close()


async def occupied(thread: DeviceThread) -> tuple[asyncio.Task[None], threading.Event]:
    """Work that holds the thread until the event is set."""
    running, release = threading.Event(), threading.Event()

    def hold() -> None:
        running.set()
        release.wait(10)

    task = asyncio.create_task(thread.run((0.0, "hold"), hold))
    await asyncio.to_thread(running.wait, 10)
    return task, release


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
