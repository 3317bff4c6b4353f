"""Full stores: who submits hears of it, and who was accepted loses nothing."""

import asyncio
import contextlib
import itertools
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import nats.js.errors
import pytest

from services.router.ids import new_job_id
from services.router.store import compare_and_set
from services.router.store.event_log import EventStore
from services.router.store.records import SCHEMA_VERSION, JobStore
from services.router.store.room import Room
from tests.integration.router.bench import CONFIG, Bench, kinds, spec
from tests.integration.router.recorded import Recorded
from tests.natsd import NatsServer
from triptych.errors import Reason, TriptychError, from_status
from triptych.exchange import Entry, Exchange, ExchangeConfig, StoreFull, events_subject
from triptych.v1.job_pb2 import (
    JOB_STATE_FAILED,
    Job,
    JobEvent,
    JobFailed,
    JobQueued,
    JobRecord,
    JobSpec,
    JobSucceeded,
    Progress,
)

LIMIT = 4 << 20


@pytest.fixture
async def bench(nats_server: NatsServer, exchange: Exchange) -> AsyncIterator[Bench]:
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router(replace(CONFIG, exchange=replace(CONFIG.exchange, outputs_max_bytes=LIMIT)))
        yield bench


async def verdict(bench: Bench) -> TriptychError | None:
    """What a submit is refused with; None if it is not."""
    try:
        await bench.submit()
    except TriptychError as error:
        return error
    return None


async def test_nothing_is_accepted_into_a_full_store(bench: Bench) -> None:
    bench.decoder.gate.close()
    accepted = await bench.submit()
    await bench.decoder.gate.reached()
    filler = await bench.exchange.put("outputs", {"file": Entry(secrets.token_bytes(LIMIT * 92 // 100))})
    async with asyncio.timeout(10):
        while (refused := await verdict(bench)) is None:  # noqa: ASYNC110 - a pause between calls
            await asyncio.sleep(0.1)
    assert refused.reason is Reason.STORE_FULL
    assert refused.metadata["store"] == "OUTPUTS"
    assert refused.retry_after_s
    await bench.decoder.gate.open()
    assert kinds(await bench.events(accepted.job_id))[-1] == "succeeded"
    await bench.exchange.delete(filler)
    async with asyncio.timeout(10):
        while await verdict(bench) is not None:  # noqa: ASYNC110 - a pause between calls
            await asyncio.sleep(0.1)
    assert (await bench.submit(spec(seed=9))).job_id


async def ends(nats_server: NatsServer, exchange: Exchange, file_bytes: int, output_count: int) -> JobEvent:
    """The last event of a job with such outputs, in a store of `LIMIT` bytes; the workers know of no such limit."""
    scheduler = replace(CONFIG.scheduler, backoff_s=0.01, max_backoff_s=0.05)
    bounds = replace(CONFIG.exchange, outputs_max_bytes=LIMIT)
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router(replace(CONFIG, scheduler=scheduler, exchange=bounds))
        bench.decoder.file_bytes = file_bytes
        job = await bench.submit(spec(output_count=output_count))
        return (await bench.events(job.job_id))[-1]


@pytest.mark.parametrize(("file_bytes", "output_count"), [(2 * LIMIT, 1), (LIMIT * 4 // 10, 3)])
async def test_a_job_that_the_empty_store_could_not_hold_waits_for_no_room(
    nats_server: NatsServer, exchange: Exchange, file_bytes: int, output_count: int
) -> None:
    """What it has there stays until it is over, so it would wait for itself, and keep the store full for everybody."""
    end = await ends(nats_server, exchange, file_bytes, output_count)
    assert end.WhichOneof("event") == "failed"
    error = from_status(end.failed.error)
    assert error.reason is Reason.STORE_FULL
    assert "raise outputs_max_bytes" in error.message


async def test_a_job_that_just_fits_does(nats_server: NatsServer, exchange: Exchange) -> None:
    assert (await ends(nats_server, exchange, LIMIT * 48 // 100, 2)).WhichOneof("event") == "succeeded"


async def fill_jobs(exchange: Exchange) -> None:
    """Fill the bucket of jobs to the last byte."""
    bucket = await exchange.bucket("jobs")
    for size in (4000, 100, 1):
        with contextlib.suppress(nats.js.errors.APIError):
            for index in itertools.count():
                await bucket.put(f"filler.{size}.{index}", b"x" * size)


async def test_a_job_that_was_not_accepted_leaves_nothing_in_a_full_store(nats_server: NatsServer) -> None:
    """A router that leads later would run it."""
    async with Exchange(ExchangeConfig(url=nats_server.url, jobs_max_bytes=64 << 10)) as exchange:
        store = JobStore(exchange)
        record = JobRecord(schema_version=SCHEMA_VERSION, job=Job(job_id="job", tenant="default"))
        await store.write(record, 0)
        await store.write_spec("job", JobSpec(prompt="x" * 1000))
        await fill_jobs(exchange)
        await store.forget("default", "job")
        assert await store.keys() == []
        assert await store.read_spec("job") is None


async def fill_events(exchange: Exchange, logs: int) -> list[str]:
    """Fill the stream of events to the last byte, with the logs of so many jobs of long ago; their ids."""
    ids = [new_job_id(float(second)) for second in range(logs)]
    revisions = dict.fromkeys(ids, 0)
    for size in (200, 20, 0):
        event = JobEvent(failed=JobFailed(error={"message": "x" * size}))
        with contextlib.suppress(StoreFull):
            for job_id in itertools.cycle(ids):
                event.job_id = job_id if size else ""
                revisions[job_id] = await compare_and_set.publish(
                    exchange, "EVENTS", events_subject(job_id), event.SerializeToString(), last=revisions[job_id]
                )
    return ids


async def test_a_full_event_store_makes_room_for_those_that_live(nats_server: NatsServer, exchange: Exchange) -> None:
    """The logs of the oldest jobs go; none is lost of a job that is not over, and new ones are taken again."""
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router(replace(CONFIG, exchange=replace(CONFIG.exchange, events_max_bytes=128 << 10)))
        bench.decoder.gate.close()
        accepted = await bench.submit()
        await bench.decoder.gate.reached()
        ids = await fill_events(exchange, 20)
        await bench.decoder.gate.open()
        events = await bench.events(accepted.job_id)
        assert kinds(events)[-1] == "succeeded"
        stored = [each.event async for each in EventStore(exchange).read(accepted.job_id)]
        assert [each.sequence for each in stored] == list(range(1, len(events) + 1))
        left = await EventStore(exchange).counts()
        assert accepted.job_id in left
        assert ids[-1] in left
        assert ids[0] not in left
        assert kinds(await bench.events((await bench.submit(spec(seed=9))).job_id))[-1] == "succeeded"
        await EventStore(exchange).purge(accepted.job_id)
        await bench.stop_router()
        await bench.start_router()
        [end] = await bench.events(accepted.job_id, after_sequence=2)
        assert (end.sequence, end.WhichOneof("event")) == (len(events), "succeeded")
        assert await bench.events(accepted.job_id, after_sequence=len(events)) == []


async def test_of_a_job_in_a_full_store_its_end_is_kept_and_its_progress_is_not(
    nats_server: NatsServer, exchange: Exchange
) -> None:
    async with Exchange(ExchangeConfig(url=nats_server.url, events_max_bytes=64 << 10)):
        it = Recorded(exchange)
        await it.recorder.accept(JobEvent(queued=JobQueued()))
        ids = await fill_events(exchange, 1)
        for step in range(3):
            it.recorder.write(JobEvent(progress=Progress(step=step)))
        it.recorder.write(JobEvent(succeeded=JobSucceeded()))
        async with asyncio.timeout(10):
            while len(it.recorder._queue) > 1:  # noqa: ASYNC110 - a pause between looks
                await asyncio.sleep(0.02)
        await it.events.purge(ids[0])
        await it.recorder.settle()
        read = [stored.event async for stored in it.events.read(it.job.job_id)]
        assert [(each.sequence, each.WhichOneof("event")) for each in read] == [(1, "queued"), (2, "succeeded")]
        assert it.over == [it.job]


async def test_a_full_store_of_jobs_forgets_those_that_have_nothing_left(
    nats_server: NatsServer, exchange: Exchange
) -> None:
    """The oldest go, with the requests that made them; whose files are kept still, stays."""
    limit, kept_s = 1 << 20, CONFIG.exchange.outputs_ttl_s
    config = replace(CONFIG, exchange=replace(CONFIG.exchange, jobs_max_bytes=limit))
    async with Exchange(replace(config.exchange, url=nats_server.url)):
        await exchange.jetstream.purge_stream("KV_jobs")
        store, now_s = JobStore(exchange), time.time()
        old = [await leave_record(store, now_s - kept_s - 1000.0 + index) for index in range(180)]
        long = await leave_record(store, now_s - 2 * kept_s, ended_s=now_s - 60.0)
        new = [await leave_record(store, now_s - 1000.0 + index) for index in range(40)]
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router(config)
        accepted = await bench.submit(request_id="kept")
        async with asyncio.timeout(10):
            while (await exchange.jetstream.stream_info("KV_jobs")).state.bytes > 0.72 * limit:  # noqa: ASYNC110
                await asyncio.sleep(0.1)  # a pause between calls
        left = [key.job_id for key in await store.keys()]
        assert {long, *new, accepted.job_id} <= set(left)
        gone = [job_id for job_id in old if job_id not in left]
        assert gone == old[: len(gone)]
        assert 20 < len(gone) < len(old)
        assert await store.claimed("default", gone[0]) is None
        assert await store.claimed("default", old[-1]) is not None
        with pytest.raises(TriptychError) as caught:
            await bench.job(gone[0])
        assert caught.value.reason is Reason.JOB_UNKNOWN
        assert (await bench.job(long)).job_id == long
        assert kinds(await bench.events(accepted.job_id))[-1] == "succeeded"


async def leave_record(store: JobStore, begun_s: float, ended_s: float | None = None) -> str:
    """What a job leaves that began then, and ended at once or later; its id, which is its request's too."""
    job_id = new_job_id(begun_s)
    record = JobRecord(schema_version=SCHEMA_VERSION, request_id=job_id)
    record.job.CopyFrom(Job(job_id=job_id, tenant="default", state=JOB_STATE_FAILED))
    record.job.error.message = "x" * 3500
    record.job.end_time.FromSeconds(int(ended_s or begun_s))
    await store.write(record, 0)
    await store.claim("default", job_id, record)
    return job_id


async def test_little_room_for_conditioning_bounds_what_is_encoded(nats_server: NatsServer) -> None:
    narrow = ExchangeConfig(url=nats_server.url, conditioning_max_bytes=LIMIT)
    async with Exchange(narrow) as exchange:
        await exchange.jetstream.purge_stream("CONDITIONING")
        told: asyncio.Queue[int | None] = asyncio.Queue()
        looking = asyncio.create_task(Room(exchange, 0.9, {}, told.put_nowait).run())
        fillers = []
        for percent, expected in ((85, 1), (11, 0)):
            data = secrets.token_bytes(LIMIT * percent // 100)
            fillers.append(await exchange.put("conditioning", {"x": Entry(data)}))
            assert await asyncio.wait_for(told.get(), 10) == expected
        await exchange.delete(fillers[0])
        assert await asyncio.wait_for(told.get(), 10) is None
        looking.cancel()
        await asyncio.wait([looking])
