"""Bundles stay while a job that is not over needs them, and their retention after that; then they go."""

import asyncio
import contextlib
import secrets
import time
from dataclasses import replace

from services.router.core.job import JobRequest, StageSeconds
from services.router.jobs import JobTable, LiveJob
from services.router.store.records import SCHEMA_VERSION
from services.router.store.retention import Retention
from tests.integration.router.bench import CONFIG, Bench, kinds, spec
from tests.integration.router.recorded import leads
from tests.natsd import NatsServer
from triptych.durations import seconds_of
from triptych.exchange import Entry, Exchange, ExchangeConfig, StoreFull
from triptych.v1.job_pb2 import (
    JOB_STATE_SUCCEEDED,
    Checkpoint,
    Conditioning,
    Job,
    JobRecord,
    JobSpec,
    Latents,
    Output,
)
from triptych.v1.tensor_pb2 import DataRef

HOUR_S = 3600.0
CONFIG_S = ExchangeConfig(conditioning_ttl_s=6 * HOUR_S, latents_ttl_s=HOUR_S, outputs_ttl_s=24 * HOUR_S)


async def put(exchange: Exchange, store: str) -> DataRef:
    return await exchange.put(store, {"x": Entry(b"x" * 100)})


async def record_of(exchange: Exchange, job_id: str) -> tuple[JobRecord, list[DataRef]]:
    """A job with something of every kind, and what it names."""
    refs = [await put(exchange, store) for store in ("conditioning", "latents", "latents", "latents", "outputs")]
    conditioning, latents, refined, checkpoint, output = refs
    made = JobRecord(
        schema_version=SCHEMA_VERSION,
        job=Job(job_id=job_id, tenant="default", outputs=[Output(data=output)]),
        conditioning=[Conditioning(data=conditioning)],
        latents=[Latents(data=latents)],
        refined_latents=[Latents(data=refined)],
        checkpoint=Checkpoint(data=checkpoint),
    )
    return made, refs


class Kept:
    """A retention with a clock of the test's, over one job."""

    def __init__(self, exchange: Exchange, record: JobRecord) -> None:
        self.jobs = JobTable(10, HOUR_S)
        self.job = LiveJob(record, JobSpec(), JobRequest("job", "default", "m", "standard", StageSeconds(1, 1, 1)))
        self.retention = Retention(exchange, CONFIG_S, self.jobs, leads)
        self._exchange = exchange

    async def at(self, hour: float, refs: list[DataRef]) -> list[bool]:
        """Which are there still, having looked at each store at this time."""
        for store in ("conditioning", "latents", "outputs"):
            await self.retention.sweep(store, hour * HOUR_S)
        return [await self._exchange.exists(ref) for ref in refs]


async def test_what_a_living_job_names_does_not_expire(exchange: Exchange) -> None:
    record, refs = await record_of(exchange, "job")
    it = Kept(exchange, record)
    it.jobs.add(it.job)
    orphan = await put(exchange, "latents")
    assert await it.at(0, [*refs, orphan]) == [True] * 6
    assert await it.at(0.9, [*refs, orphan]) == [True] * 6
    assert await it.at(100, [*refs, orphan]) == [True] * 5 + [False]
    it.job.job.state = JOB_STATE_SUCCEEDED
    it.jobs.end(it.job)
    conditioning, *latents, output = [0, 1, 2, 3, 4]
    for hour, gone in ((101, []), (101.9, []), (102, latents), (107, [conditioning, *latents]), (125, [0, 1, 2, 3, 4])):
        assert await it.at(hour, refs) == [index not in gone for index in range(5)]
    assert output not in latents


async def test_another_router_counts_from_the_jobs_end(exchange: Exchange) -> None:
    record, refs = await record_of(exchange, "job")
    record.job.end_time.FromSeconds(int(10 * HOUR_S))
    it = Kept(exchange, record)
    it.retention.note_end(record)
    assert await it.at(10.9, refs) == [True] * 5
    assert await it.at(11.1, refs) == [True, False, False, False, True]


async def test_the_end_of_a_job_is_noted(nats_server: NatsServer, exchange: Exchange) -> None:
    """Its conditioning may have been another's before, and unnamed at the last look, long ago."""
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router()
        job = await bench.submit()
        await bench.events(job.job_id)
        [conditioning] = bench.denoiser.calls_of(job.job_id)[0].conditioning
        ended_s = seconds_of((await bench.job(job.job_id)).end_time)
        assert bench._router is not None
        assert bench._router._leading.desk is not None
        since_s = bench._router._leading.desk._retention._unnamed["conditioning"]
        async with asyncio.timeout(10):
            while conditioning.data.bundle_id not in since_s:  # noqa: ASYNC110 - a pause between looks
                await asyncio.sleep(0.01)
        assert since_s[conditioning.data.bundle_id] == ended_s


async def test_what_is_no_bundle_is_left_alone_and_keeps_nothing_else(exchange: Exchange) -> None:
    """NATS takes wildcards as names. A purge of one would be of everything."""
    record, refs = await record_of(exchange, "job")
    strangers = ["tt.latents.garbage.m", "tt.latents.garbage", "tt.latents.*.m", "tt.latents.>"]
    for subject in strangers:
        await exchange.jetstream.publish(subject, b"x")
    it = Kept(exchange, record)
    it.jobs.add(it.job)
    assert await it.at(0, refs) == [True] * 5
    assert await it.at(100, refs) == [True] * 5
    await it.retention.shorten("latents", 1.0, 200 * HOUR_S)
    it.job.job.state = JOB_STATE_SUCCEEDED
    it.jobs.end(it.job)
    await it.at(200, refs)
    assert await it.at(300, refs) == [False] * 5
    assert set(await exchange.subjects("LATENTS", "tt.latents.>")) == set(strangers)


async def test_what_is_still_being_put_does_not_go_early(exchange: Exchange) -> None:
    """However long that takes: it counts from when it was complete."""
    record, _ = await record_of(exchange, "job")
    it = Kept(exchange, record)
    bundle_id = secrets.token_hex(16)

    async def there_at(now_s: float) -> bool:
        await it.retention.shorten("latents", 1.0, now_s)
        return bundle_id in await exchange.bundles("latents")

    await exchange.jetstream.publish(f"tt.latents.{bundle_id}.0", b"x")
    assert await there_at(0.0)
    assert await there_at(60.0)
    await exchange.jetstream.publish(f"tt.latents.{bundle_id}.m", b"x")
    assert await there_at(61.0)
    assert await there_at(70.0)
    assert not await there_at(71.0)
    left = secrets.token_hex(16)
    await exchange.jetstream.publish(f"tt.latents.{left}.0", b"x")
    await it.retention.sweep("latents", 100.0)
    assert left in await exchange.bundles("latents")
    await it.retention.sweep("latents", 100.0 + HOUR_S)
    assert left not in await exchange.bundles("latents")


async def test_a_decode_may_wait_longer_than_latents_are_kept(nats_server: NatsServer, exchange: Exchange) -> None:
    short = replace(CONFIG.exchange, latents_ttl_s=0.5, conditioning_ttl_s=0.5, conditioning_index_ttl_s=0.4)
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router(replace(CONFIG, exchange=short))
        bench.decoder.gate.close()
        job = await bench.submit(spec(output_count=1))
        await bench.decoder.gate.reached()
        [conditioning] = bench.denoiser.calls_of(job.job_id)[0].conditioning
        latents = bench.decoder.calls_of(job.job_id)[0].latents
        orphans = [await put(exchange, store) for store in ("conditioning", "latents")]
        async with asyncio.timeout(10):
            while any([await exchange.exists(orphan) for orphan in orphans]):  # noqa: ASYNC110 - a pause between calls
                await asyncio.sleep(0.05)
        assert await exchange.exists(conditioning.data)
        assert await exchange.exists(latents.data)
        await bench.decoder.gate.open()
        events = await bench.events(job.job_id)
        assert kinds(events)[-1] == "succeeded"
        assert "requeued" not in kinds(events)
        async with asyncio.timeout(10):
            while await exchange.exists(latents.data):  # noqa: ASYNC110 - a pause between calls
                await asyncio.sleep(0.05)


async def test_in_a_full_store_what_no_job_names_goes_early_the_longest_unwanted_first(nats_server: NatsServer) -> None:
    limit = 2 << 20
    narrow = ExchangeConfig(url=nats_server.url, conditioning_max_bytes=limit, latents_max_bytes=limit)
    async with Exchange(narrow) as exchange:
        for stream in ("CONDITIONING", "LATENTS"):
            await exchange.jetstream.purge_stream(stream)
        record, refs = await record_of(exchange, "job")
        it = Kept(exchange, record)
        it.jobs.add(it.job)
        for store, named in (("conditioning", refs[:1]), ("latents", refs[1:4])):
            unnamed: list[DataRef] = []
            with contextlib.suppress(StoreFull):
                for hour in range(100):
                    unnamed.append(await exchange.put(store, {"x": Entry(secrets.token_bytes(limit // 10))}))
                    await it.retention.sweep(store, hour / 1000 * HOUR_S)
            assert 8 <= len(unnamed) <= 10
            # The oldest is wanted again; the newest may be about to be.
            wanted, *idle, newest = unnamed
            now_s = (len(unnamed) - 1) / 1000 * HOUR_S + 9.0
            assert it.retention.keep([wanted], now_s)
            removed_count = await it.retention.shorten(store, 0.3, now_s)
            assert removed_count == -(-3 * (len(unnamed) + len(named)) // 10)
            there = [await exchange.exists(ref) for ref in idle]
            assert there == [False] * removed_count + [True] * (len(idle) - removed_count)
            await exchange.put(store, {"x": Entry(secrets.token_bytes(limit // 10))})
            # All of it at most: not what is named, nor what may be.
            await it.retention.shorten(store, 1.0, now_s)
            assert [await exchange.exists(ref) for ref in (*named, wanted, newest)] == [True] * (len(named) + 2)
            assert not any([await exchange.exists(ref) for ref in idle])


async def test_more_prompts_than_the_store_holds(nats_server: NatsServer, exchange: Exchange) -> None:
    """None is refused, and none of the accepted is lost, although each leaves what it was encoded to."""
    limit, size = 16 << 20, 256 << 10
    bounds = {"conditioning_max_bytes": limit, "conditioning_ttl_s": 20.0, "conditioning_index_ttl_s": 10.0}
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router(replace(CONFIG, exchange=replace(CONFIG.exchange, **bounds)))
        for _ in range(limit * 7 // 10 // size):
            await exchange.put("conditioning", {"x": Entry(secrets.token_bytes(size))})
        bench.encoder.padding = size
        for turn in range(2):
            jobs = await asyncio.gather(*(bench.submit(spec(prompt=f"prompt {turn} {index}")) for index in range(10)))
            ends = await asyncio.gather(*(bench.events(job.job_id) for job in jobs))
            assert [kinds(events)[-1] for events in ends] == ["succeeded"] * len(jobs)
            async with asyncio.timeout(15):
                while await bytes_in(exchange, "CONDITIONING") > 0.72 * limit:  # noqa: ASYNC110 - a pause between calls
                    await asyncio.sleep(0.1)


async def bytes_in(exchange: Exchange, stream: str) -> int:
    return int((await exchange.jetstream.stream_info(stream)).state.bytes)


async def test_a_stage_that_finds_its_store_full_waits_and_costs_no_try(
    nats_server: NatsServer, exchange: Exchange
) -> None:
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        config = replace(CONFIG.scheduler, max_attempts=1, backoff_s=0.01)
        await bench.start_router(replace(CONFIG, scheduler=config))
        for peer in bench.peers:
            peer.errors += [StoreFull("its store")] * 4
        job = await bench.submit()
        events = await bench.events(job.job_id)
        assert kinds(events)[-1] == "succeeded"
        assert kinds(events).count("requeued") == 12


async def test_who_waits_for_room_does_not_wait_for_a_clock_that_was_set_back(
    nats_server: NatsServer, exchange: Exchange
) -> None:
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers()
        await bench.start_router()
        assert bench._router is not None
        assert bench._router._leading.desk is not None
        bench._router._leading.desk.driver.clock._wall = lambda: time.time() - HOUR_S
        bench.decoder.errors += [StoreFull("outputs")]
        job = await bench.submit()
        assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
