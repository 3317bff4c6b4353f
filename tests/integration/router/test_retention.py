"""Bundles stay while a job that is not over needs them, and their retention after that; then they go."""

import asyncio
from dataclasses import replace

from services.router.core.job import JobRequest, StageSeconds
from services.router.jobs import JobTable, LiveJob
from services.router.store.records import SCHEMA_VERSION
from services.router.store.retention import Retention
from tests.integration.router.bench import CONFIG, Bench, kinds, spec
from tests.natsd import NatsServer
from triptych.exchange import Entry, Exchange, ExchangeConfig
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


async def leads() -> None:
    """Of a router that does."""


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
