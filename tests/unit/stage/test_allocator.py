"""The allocator's arenas are shared, and trimmed between calls, where there are arenas."""

import asyncio
import platform

import psutil
import pytest

from services.stage.allocator import keep_trimmed, share_arenas, trim
from services.stage.calls import Calls
from triptych.v1.encoder_service_pb2 import StageCall

is_glibc = platform.libc_ver()[0] == "glibc"


def test_they_are_shared_by_glibc_and_left_alone_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    assert share_arenas() == is_glibc
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    assert not share_arenas()


@pytest.mark.skipif(not is_glibc, reason="another C library")
def test_what_lies_below_a_small_thing_goes_back_to_the_system() -> None:
    blocks = [bytearray(b"x") * 100_000 for _ in range(2_000)]
    del blocks[:-1]
    before = psutil.Process().memory_info().rss
    trim()
    assert before - psutil.Process().memory_info().rss > 100_000_000


async def test_it_is_trimmed_between_calls_and_only_after_some() -> None:
    calls, trimmed = Calls(2), asyncio.Semaphore(0)
    trimming = asyncio.create_task(keep_trimmed(calls, every_s=0.01, trim=trimmed.release))
    await asyncio.sleep(0.05)
    assert trimmed.locked()
    with calls.admit(StageCall(job_id="a", attempt=1)):
        await asyncio.sleep(0.05)
        assert trimmed.locked()
    await asyncio.wait_for(trimmed.acquire(), 10)
    await asyncio.sleep(0.05)
    assert trimmed.locked()
    trimming.cancel()
    await asyncio.wait([trimming])
