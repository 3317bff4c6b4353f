"""Previews through the router: between events, the newest alone, none that is out of date, none after the end."""

import asyncio
from typing import Any

import grpc

from tests.integration.router.bench import WAIT_S, Bench, kinds, spec
from triptych.previews import made_subject
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import JobEvent, JobSpec, Preview

EVERY_STEP = {"everySteps": 1}


class Watcher:
    """One stream of a job's events and previews, read up to where a test wants it."""

    def __init__(self, bench: Bench, job_id: str) -> None:
        self.events: list[JobEvent] = []
        self.previews: list[Preview] = []
        self._stream = bench.stub.WatchJob(pb.WatchJobRequest(job_id=job_id), timeout=WAIT_S * 2)

    async def until(self, kind: str) -> None:
        """Read up to an event of this kind, or up to the next preview."""
        while (item := await self._stream.read()) is not grpc.aio.EOF:
            if item.WhichOneof("item") == "preview":
                self.previews.append(item.preview)
                if kind == "preview":
                    return
            else:
                self.events.append(item.event)
                if item.event.WhichOneof("event") == kind:
                    return
        raise AssertionError(f"no {kind}")

    async def until_end(self) -> None:
        while (item := await self._stream.read()) is not grpc.aio.EOF:
            if item.WhichOneof("item") == "preview":
                self.previews.append(item.preview)
            else:
                self.events.append(item.event)


def preview(job_id: str, step: int, **fields: Any) -> Preview:
    return Preview(job_id=job_id, step=step, **{"attempt": 1, "step_count": 4, "data": b"webp", **fields})


async def publish(bench: Bench, *previews: Preview) -> None:
    """As a decoder does."""
    for each in previews:
        await bench.exchange.control.publish(made_subject(each.job_id), each.SerializeToString())
    await bench.exchange.control.flush()


def previewed(**fields: Any) -> JobSpec:
    return spec(preview=EVERY_STEP, **fields)


async def test_they_come_between_events_which_stay_as_they_are(bench: Bench) -> None:
    await bench.denoiser.gate.open(1)
    job = await bench.submit(previewed())
    assert job.spec.preview.max_side == 256
    watcher = Watcher(bench, job.job_id)
    await watcher.until("progress")
    await publish(bench, preview(job.job_id, 1))
    await watcher.until("preview")
    await bench.denoiser.gate.open()
    await watcher.until_end()
    assert watcher.previews == [preview(job.job_id, 1)]
    assert watcher.events == await bench.events(job.job_id)
    assert [event.sequence for event in watcher.events] == list(range(1, len(watcher.events) + 1))


async def test_what_is_out_of_date_is_dropped(bench: Bench) -> None:
    await bench.denoiser.gate.open(1)
    job = await bench.submit(previewed())
    watcher = Watcher(bench, job.job_id)
    await watcher.until("progress")
    await publish(
        bench,
        preview(job.job_id, 2, attempt=0),
        preview(job.job_id, 2, output_index=1),
        preview(job.job_id, 2, data=bytes(3 * 1024 * 1024 + 1)),
        preview(job.job_id, 2),
    )
    await watcher.until("preview")
    await publish(bench, preview(job.job_id, 1), preview(job.job_id, 2), preview(job.job_id, 3))
    await watcher.until("preview")
    assert watcher.previews == [preview(job.job_id, 2), preview(job.job_id, 3)]


async def test_none_follows_a_cancel(bench: Bench) -> None:
    await bench.denoiser.gate.open(1)
    job = await bench.submit(previewed())
    watcher = Watcher(bench, job.job_id)
    await watcher.until("progress")
    await bench.cancel(job.job_id)
    await publish(bench, preview(job.job_id, 1))
    await watcher.until_end()
    assert kinds(watcher.events)[-1] == "cancelled"
    late = Watcher(bench, job.job_id)
    await publish(bench, preview(job.job_id, 2))
    await late.until_end()
    assert (watcher.previews, late.previews) == ([], [])


async def test_none_of_an_output_that_is_done(bench: Bench) -> None:
    await bench.denoiser.gate.open(5)
    job = await bench.submit(previewed(output_count=2))
    watcher = Watcher(bench, job.job_id)
    await watcher.until("output")
    await bench.denoiser.gate.reached(6)
    await publish(bench, preview(job.job_id, 3), preview(job.job_id, 1, output_index=1))
    await watcher.until("preview")
    assert watcher.previews == [preview(job.job_id, 1, output_index=1)]


async def test_who_reads_slowly_gets_the_newest(bench: Bench) -> None:
    await bench.denoiser.gate.open(1)
    job = await bench.submit(previewed(step_count=100))
    slow, quick = Watcher(bench, job.job_id), Watcher(bench, job.job_id)
    await asyncio.gather(slow.until("progress"), quick.until("progress"))
    for step in range(1, 101):
        await publish(bench, preview(job.job_id, step, data=bytes(250_000)))
        await quick.until("preview")
    while not slow.previews or slow.previews[-1].step < 100:
        await slow.until("preview")
    assert len(quick.previews) == 100
    assert len(slow.previews) < 50


async def test_a_generation_has_them_too(bench: Bench) -> None:
    await bench.denoiser.gate.open(1)
    stream = bench.stub.GenerateMedia(pb.GenerateMediaRequest(spec=previewed()))
    job_id = (await stream.read()).accepted.job_id
    while not (await stream.read()).job_event.HasField("progress"):
        pass
    await publish(bench, preview(job_id, 1))
    assert (await stream.read()).preview == preview(job_id, 1)
    await bench.denoiser.gate.open()
    rest = []
    while (response := await stream.read()) is not grpc.aio.EOF:
        rest.append(response.WhichOneof("event"))
    assert "preview" not in rest
    assert rest[-1] == "job_event"


async def test_a_job_that_asks_for_none_gets_none(bench: Bench) -> None:
    await bench.denoiser.gate.open(1)
    job = await bench.submit()
    watcher = Watcher(bench, job.job_id)
    await watcher.until("progress")
    await publish(bench, preview(job.job_id, 1))
    await bench.denoiser.gate.open()
    await watcher.until_end()
    assert watcher.previews == []
