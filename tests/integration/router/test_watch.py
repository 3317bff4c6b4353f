"""Watching: every event once, in order, from any place, by fast and slow clients."""

import asyncio

import pytest

from services.router import jobs
from tests.integration.router.bench import Bench, check_log, kinds, spec
from triptych.v1.job_pb2 import JobEvent


async def test_from_any_place(bench: Bench) -> None:
    job = await bench.submit()
    events = await bench.events(job.job_id)
    for after in range(len(events) + 1):
        assert await bench.events(job.job_id, after) == events[after:]
    assert await bench.events(job.job_id, 1000) == []


async def test_many_watchers_see_the_same(bench: Bench) -> None:
    await bench.denoiser.gate.open(1)
    job = await bench.submit()
    early = [asyncio.create_task(bench.events(job.job_id)) for _ in range(3)]
    await bench.denoiser.gate.reached(2)
    late = [asyncio.create_task(bench.events(job.job_id)) for _ in range(3)]
    await bench.denoiser.gate.open()
    seen = await asyncio.gather(*early, *late)
    check_log(seen[0])
    assert seen == [seen[0]] * 6


@pytest.mark.parametrize("kept", [1, 3])
async def test_a_watcher_that_falls_behind_reads_the_stream(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    monkeypatch.setattr(jobs, "RECENT_EVENTS", kept)
    job = await bench.submit(spec(output_count=3))
    watching = bench.watch(job.job_id)
    seen: list[JobEvent] = [await anext(watching)]
    quick = await bench.events(job.job_id)
    seen += [event async for event in watching]
    assert seen == quick
    assert [event.sequence for event in quick] == list(range(1, len(quick) + 1))


async def test_a_job_that_memory_has_forgotten(bench: Bench) -> None:
    job = await bench.submit()
    events = await bench.events(job.job_id)
    await bench.stop_router()
    await bench.start_router()  # which takes up only what is not over
    assert await bench.events(job.job_id) == events
    assert await bench.events(job.job_id, 3) == events[3:]
    assert (await bench.job(job.job_id)).last_sequence == len(events)
    assert await bench.download(job.job_id) == b"output of 7"


async def test_a_router_that_drains_tells_its_watchers_to_go_elsewhere(bench: Bench) -> None:
    await bench.denoiser.gate.open(1)
    job = await bench.submit()
    await bench.denoiser.gate.reached(2)
    seen: list[JobEvent] = []
    started = asyncio.Event()

    async def watch() -> None:
        async for response in bench.watch(job.job_id):
            seen.append(response)
            if response.stage_started.stage == 2:
                started.set()

    channel_address = bench.address
    watching = asyncio.create_task(watch())
    await asyncio.wait_for(started.wait(), 10)
    await bench.end_router()
    with pytest.raises(Exception, match=r"going down|[Cc]ancelled"):
        await watching
    await bench.denoiser.gate.open()
    await bench.start_router()
    assert bench.address != channel_address
    seen += await bench.events(job.job_id, seen[-1].sequence)
    assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
    assert kinds(seen)[-1] == "succeeded"
