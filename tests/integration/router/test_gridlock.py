"""Jobs that fill a store between them: all of them are made, one after the other."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from services.router.access.principal import EVERYONE, set_caller
from services.router.ids import new_job_id
from services.router.jobs import JobTable
from services.router.reads.downloads import Downloads
from services.router.server import RouterServer
from services.router.store.recorders import Recorders
from services.router.store.surrender import Surrender
from tests.integration.router.bench import CONFIG, Bench, kinds, spec
from tests.integration.router.process import RouterProcess
from tests.integration.router.recorded import Recorded, leads
from tests.natsd import NatsServer
from triptych.client import Client, Media
from triptych.exchange import Entry, Exchange
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import STAGE_DECODE, STAGE_DENOISE, Job, JobEvent, JobQueued, JobRequeued, Output

LIMIT = 4 << 20
# Of such pieces a store holds two, and each of two jobs makes two.
PIECE = LIMIT * 4 // 10
SCHEDULER = replace(CONFIG.scheduler, backoff_s=0.1, max_backoff_s=0.5)


@asynccontextmanager
async def narrow(url: str, exchange: Exchange, **bounds: Any) -> AsyncIterator[Bench]:
    """A router whose stores have such bounds, and two denoisers that wait before each step."""
    config = replace(CONFIG, scheduler=SCHEDULER, exchange=replace(CONFIG.exchange, **bounds))
    async with Bench(url, exchange) as bench:
        await bench.start_peers(denoisers=2)
        await bench.start_router(config)
        for denoiser in bench.denoisers:
            denoiser.gate.close()
        yield bench


async def first_outputs(bench: Bench, *job_ids: str) -> None:
    """Let each denoiser make one output, and wait until the jobs have it."""
    for denoiser in bench.denoisers:
        await denoiser.gate.open(4)
    async with asyncio.timeout(10):
        for job_id in job_ids:
            while not (await bench.job(job_id)).outputs:  # noqa: ASYNC110 - a pause between calls
                await asyncio.sleep(0.02)


async def go_on(bench: Bench) -> None:
    for denoiser in bench.denoisers:
        await denoiser.gate.open()


def withdrawals(events: list[JobEvent]) -> list[tuple[str, int, list[int]]]:
    """What was made again, as the log tells."""
    told = [event.requeued for event in events if event.HasField("requeued")]
    return [(each.reason, each.stage, list(each.withdrawn_outputs)) for each in told if each.reason != "STORE_FULL"]


async def test_outputs_are_given_back_to_the_first_and_made_again(nats_server: NatsServer, exchange: Exchange) -> None:
    async with narrow(nats_server.url, exchange, outputs_max_bytes=LIMIT) as bench, Client(bench.address) as client:
        bench.decoder.file_bytes = PIECE
        first = await bench.submit(spec(output_count=2, seed=1))
        accepted: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def follow() -> list[Media]:
            """Whatever comes of the second job's outputs, in the order of its coming."""
            media = []
            async for item in client.stream(spec(output_count=2, seed=5)):
                if isinstance(item, Media):
                    media.append(item)
                elif not accepted.done():
                    accepted.set_result(item.job_id)
            return media

        following = asyncio.create_task(follow())
        second_id = await accepted
        await first_outputs(bench, first.job_id, second_id)
        await go_on(bench)
        assert kinds(await bench.events(first.job_id))[-1] == "succeeded"
        async with asyncio.timeout(10):
            while (await bench.job(second_id)).outputs:  # noqa: ASYNC110 - a pause between calls
                await asyncio.sleep(0.02)
        for output in (await bench.job(first.job_id)).outputs:
            await exchange.delete(output.data)
        media = await asyncio.wait_for(following, 20)
        # The first came twice: before it was given back, and made again.
        assert [each.output.index for each in media].count(0) == 2
        assert {each.output.index: each.data.rstrip(b".") for each in media} == {0: b"output of 5", 1: b"output of 6"}
        events = await bench.events(second_id)
        assert kinds(events)[-1] == "succeeded"
        assert withdrawals(events) == [("MADE_ROOM", STAGE_DECODE, [0])]
        assert [output.index for output in (await bench.job(second_id)).outputs] == [0, 1]
        assert (await bench.download(second_id, 0)).rstrip(b".") == b"output of 5"


async def test_latents_are_given_back_to_the_first_and_made_again(nats_server: NatsServer, exchange: Exchange) -> None:
    bounds = {"latents_max_bytes": LIMIT, "latents_ttl_s": 1.0}
    async with narrow(nats_server.url, exchange, **bounds) as bench:
        for denoiser in bench.denoisers:
            denoiser.latents_bytes = PIECE
        jobs = [await bench.submit(spec(output_count=2, seed=seed)) for seed in (1, 5)]
        await first_outputs(bench, *[job.job_id for job in jobs])
        await go_on(bench)
        logs = [await bench.events(job.job_id) for job in jobs]
        assert [kinds(log)[-1] for log in logs] == ["succeeded", "succeeded"]
        assert [withdrawals(log) for log in logs] == [[], [("MADE_ROOM", STAGE_DENOISE, [])]]
        # What was decoded stays so, and is not made again.
        assert [sum(event.HasField("output") for event in log) for log in logs] == [2, 2]
        assert (await bench.download(jobs[1].job_id, 1)) == b"output of 6"


async def test_an_output_that_is_missed_by_the_next_router_is_made_again(
    nats_server: NatsServer, exchange: Exchange
) -> None:
    async with narrow(nats_server.url, exchange) as bench:
        job = await bench.submit(spec(output_count=2, seed=1))
        await first_outputs(bench, job.job_id)
        [output] = (await bench.job(job.job_id)).outputs
        await bench.stop_router()
        await exchange.delete(output.data)
        await bench.start_router()
        await go_on(bench)
        events = await bench.events(job.job_id)
        assert kinds(events)[-1] == "succeeded"
        assert ("OUTPUTS_GONE", STAGE_DECODE, [0]) in withdrawals(events)
        assert [await bench.download(job.job_id, index) for index in (0, 1)] == [b"output of 1", b"output of 2"]


async def test_a_router_that_is_killed_while_room_is_made_loses_nothing(
    nats_server: NatsServer, exchange: Exchange, tmp_path: Path
) -> None:
    """Killed as it says who makes room: the event, the removal, or neither may have come to pass."""
    settings = tmp_path / "router.toml"
    settings.write_text("[scheduler]\nbackoff_s = 0.1\nmax_backoff_s = 0.5\n")
    flags = {"config": str(settings), "exchange.outputs_max_bytes": str(LIMIT)}
    async with Bench(nats_server.url, exchange) as bench:
        await bench.start_peers(denoisers=2)
        bench.decoder.file_bytes = PIECE
        for denoiser in bench.denoisers:
            denoiser.gate.close()
        async with RouterProcess(nats_server.url, tmp_path / "router", **flags) as router:
            await bench.connect(router.address)
            await bench.fleet_has({peer.worker_id for peer in bench.peers})
            first, second = [await bench.submit(spec(output_count=2, seed=seed)) for seed in (1, 5)]
            await first_outputs(bench, first.job_id, second.job_id)
            await go_on(bench)
            await router.until("job_gives_room")
            await router.end(signal.SIGKILL)
        async with RouterProcess(nats_server.url, tmp_path / "router", **flags) as router:
            await bench.connect(router.address)
            for job, seed in ((first, 1), (second, 5)):
                assert kinds(await bench.events(job.job_id))[-1] == "succeeded"
                files = [(await bench.download(job.job_id, index)).rstrip(b".") for index in (0, 1)]
                assert files == [f"output of {seed + index}".encode() for index in (0, 1)]
                for output in (await bench.job(job.job_id)).outputs:
                    await exchange.delete(output.data)


async def test_latents_that_jobs_go_on_from_are_given_back_too(nats_server: NatsServer, exchange: Exchange) -> None:
    """Of two jobs that refine others the last makes room, and runs all of its steps."""
    bounds = {"latents_max_bytes": LIMIT, "latents_ttl_s": 2.0}
    async with narrow(nats_server.url, exchange, **bounds) as bench:
        for denoiser in bench.denoisers:
            denoiser.latents_bytes = PIECE
        await go_on(bench)
        jobs = [await bench.submit(spec(seed=seed)) for seed in (1, 5)]
        for job in jobs:
            await bench.events(job.job_id)
        first, second = [await bench.amend(job.job_id, 6) for job in jobs]
        logs = [await bench.events(job.job_id) for job in (first, second)]
        assert [kinds(log)[-1] for log in logs] == ["succeeded", "succeeded"]
        assert [withdrawals(log) for log in logs] == [[], [("MADE_ROOM", STAGE_DENOISE, [])]]
        called = [call for denoiser in bench.denoisers for call in denoiser.calls_of(second.job_id)]
        assert [(len(call.refined_latents), call.refined_step_count) for call in called][-1] == (0, 0)


async def test_what_is_given_back_goes_unless_another_job_goes_on_from_it(exchange: Exchange) -> None:
    """An output that was told of only just goes as well."""
    giver, refiner = Recorded(exchange), Recorded(exchange)
    own, shared = [await exchange.put("latents", {"x": Entry(b"x")}) for _ in range(2)]
    output = await exchange.put("outputs", {"x": Entry(b"x")})
    refiner.job.record.refined_latents.add(data=shared)
    jobs = JobTable(10, 3600.0)
    for recorded in (giver, refiner):
        jobs.add(recorded.job)
    recorders = Recorders(giver.events, giver.store, giver.mandate, giver.over.append, scarce=lambda: False)
    recorder = recorders.of(giver.job)
    await recorder.accept(JobEvent(queued=JobQueued()))
    recorder.write(JobEvent(output=Output(data=output)))
    recorder.write(JobEvent(requeued=JobRequeued(stage=STAGE_DECODE, withdrawn_outputs=[0])))
    giver.job.record.surrendered.extend([own, shared])
    Surrender(exchange, jobs, recorders, leads).remove(giver.job)
    async with asyncio.timeout(10):
        while await exchange.exists(own) or await exchange.exists(output):  # noqa: ASYNC110 - a pause between calls
            await asyncio.sleep(0.02)
    assert await exchange.exists(shared)


async def test_a_stream_tells_the_end_of_a_job_whose_output_was_withdrawn_before_it_was_fetched(
    nats_server: NatsServer, exchange: Exchange
) -> None:
    async with narrow(nats_server.url, exchange, outputs_max_bytes=LIMIT) as bench, Client(bench.address) as client:
        bench.decoder.file_bytes = PIECE
        first = await bench.submit(spec(output_count=2, seed=1))
        items = client.stream(spec(output_count=2, seed=5))
        second = await anext(items)
        assert isinstance(second, Job)
        await first_outputs(bench, first.job_id, second.job_id)
        async for item in items:
            if isinstance(item, JobEvent) and item.HasField("output"):
                break
        await go_on(bench)
        assert kinds(await bench.events(first.job_id))[-1] == "succeeded"
        await bench.cancel(second.job_id)
        assert (await bench.job(second.job_id)).outputs == []
        rest = [item async for item in items]
        assert not [item for item in rest if isinstance(item, Media)]
        assert isinstance(rest[-1], JobEvent)
        assert rest[-1].HasField("cancelled")


async def test_a_download_that_comes_too_late_is_of_what_was_made_again(exchange: Exchange) -> None:
    """Between the look at the job and the look at the store it was given back, and made again."""
    given, made = [Output(data=await exchange.put("outputs", {"file": Entry(file)})) for file in (b"old", b"new")]
    await exchange.delete(given.data)
    looks = iter([given, made, made])

    class LateWatch:
        async def job(self, job_id: str, who: object) -> Job:
            return Job(job_id=job_id, spec=spec(), outputs=[next(looks)])

    server = RouterServer(1)
    server.desk = SimpleNamespace(watch=LateWatch(), downloads=Downloads(exchange, 1))  # type: ignore[assignment]
    set_caller(EVERYONE)
    request = pb.DownloadOutputRequest(job_id=new_job_id(1.0))
    told, chunk = [response async for response in server.DownloadOutput(request, None)]  # type: ignore[arg-type]
    assert (told.output, chunk.chunk.data) == (made, b"new")
