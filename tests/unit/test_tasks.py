"""Tasks that run until they are cancelled."""

import asyncio

import pytest

from triptych.tasks import checked, end, run_together


async def deaf(to: int, ended: list[str]) -> None:
    """Loses so many cancellations, as `asyncio.wait_for` may."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not to:
                ended.append("deaf")
                raise
            to -= 1


async def test_a_task_that_loses_a_cancellation_ends_all_the_same() -> None:
    ended: list[str] = []
    task = asyncio.create_task(deaf(2, ended))
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await end(task)
    assert task.cancelled()
    assert ended == ["deaf"]


async def test_who_is_cancelled_while_ending_tasks_ends_them_first() -> None:
    ended: list[str] = []
    task = asyncio.create_task(deaf(1, ended))
    await asyncio.sleep(0)
    ending = asyncio.create_task(end(task))
    await asyncio.sleep(0)
    ending.cancel()
    async with asyncio.timeout(20):
        await asyncio.wait([ending])
    assert ending.cancelled()
    assert ended == ["deaf"]


async def test_where_one_fails_the_others_end() -> None:
    ended: list[str] = []

    async def fail() -> None:
        raise ValueError("why")

    async with asyncio.timeout(20):
        with pytest.raises(ValueError, match="why"):
            await run_together(deaf(1, ended), fail())
    assert ended == ["deaf"]


async def test_where_all_are_done_it_is_over() -> None:
    async with asyncio.timeout(20):
        await run_together(asyncio.sleep(0), asyncio.sleep(0))
        await end()


async def test_work_is_ended_by_what_its_check_raises() -> None:
    work = asyncio.create_task(asyncio.Event().wait())
    looks = 0

    async def check() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise ValueError("it will never come")

    with pytest.raises(ValueError, match="never come"):
        await checked(work, check, 0.01)
    await asyncio.wait([work])
    assert work.cancelled()


async def test_work_that_is_done_is_not_checked() -> None:
    async def check() -> None:
        raise AssertionError("it was done")

    assert await checked(asyncio.sleep(0, "done"), check, 60.0) == "done"
