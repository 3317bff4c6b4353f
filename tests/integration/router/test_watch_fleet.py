"""Watchers of the fleet: snapshots when it has changed, decisions with their reasons; and settings that change."""

import asyncio
from dataclasses import replace

from google.protobuf.duration_pb2 import Duration

from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.reads.fleet_watch import MAX_WAITING, FleetWatch
from tests.integration.router.bench import CONFIG, WAIT_S, Bench
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import STAGE_DECODE, STAGE_DENOISE, STAGE_ENCODE


async def test_a_watcher_hears_of_a_jobs_whole_way(bench: Bench) -> None:
    decisions: list[pb.Decision] = []
    async with asyncio.timeout(WAIT_S):
        watching = bench.stub.WatchFleet(pb.WatchFleetRequest(interval=Duration(nanos=100_000_000)))
        stream = aiter(watching)
        first = await anext(stream)
        assert {worker.worker_id for worker in first.snapshot.workers} == {peer.worker_id for peer in bench.peers}
        job = await bench.submit()
        async for response in stream:
            if response.HasField("decision"):
                decisions.append(response.decision)
                if response.decision.kind == "finished":
                    break
    watching.cancel()
    assert {decision.job_id for decision in decisions} == {job.job_id}
    assert [(decision.kind, decision.stage) for decision in decisions] == [
        ("admitted", 0),
        ("started", STAGE_ENCODE),
        ("started", STAGE_DENOISE),
        ("started", STAGE_DECODE),
        ("finished", 0),
    ]
    assert decisions[0].verdict.admitted
    assert decisions[0].verdict.pool == job.pool
    assert all(decision.reason and decision.pool == job.pool for decision in decisions)
    assert decisions[2].worker_id == bench.denoiser.worker_id


async def test_a_slow_watcher_misses_the_oldest_and_is_told_how_many() -> None:
    watch = FleetWatch()
    following = watch.follow(60.0, pb.GetFleetResponse, lambda decision: decision.job_id != "of another")
    assert (await anext(following)).HasField("snapshot")
    for index in range(MAX_WAITING + 3):
        watch.tell(pb.Decision(job_id=str(index)))
        watch.tell(pb.Decision(job_id="of another"))
    first = await anext(following)
    assert (first.decision.job_id, first.missed_count) == ("3", 3)
    await following.aclose()
    assert not watch.watched


async def test_settings_of_the_scheduler_change_while_jobs_run(bench: Bench) -> None:
    job = await bench.submit()
    bench.reconfigure(replace(CONFIG, scheduler=SchedulerConfig(pools=(PoolConfig(name="everything"),))))
    fleet = await bench.stub.GetFleet(pb.GetFleetRequest())
    assert [pool.name for pool in fleet.pools] == ["everything"]
    assert (await bench.events(job.job_id))[-1].HasField("succeeded")
