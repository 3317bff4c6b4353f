"""Tasks that run until they are cancelled."""

import asyncio

import pytest

from triptych.tasks import end, run_together


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
