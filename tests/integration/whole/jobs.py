"""Jobs for the tests of whole suites, and what their event logs must always be."""

from typing import Any

from triptych.client import Client
from triptych.endings import is_terminal
from triptych.v1.job_pb2 import MEDIA_FORMAT_PNG, Job, JobEvent, JobSpec


def job(model: str, **fields: Any) -> JobSpec:
    """A reproducible job with a lossless output; the catalog's defaults fill in the rest."""
    return JobSpec(model=model, **{"prompt": "a red circle", "seed": 11, "output_format": MEDIA_FORMAT_PNG, **fields})


async def events_of(client: Client, job_id: str) -> list[JobEvent]:
    """A job's whole log, up to its end: numbered without a gap, one end, nothing after it."""
    events = [event async for event in client.watch(job_id)]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [is_terminal(event) for event in events] == [False] * (len(events) - 1) + [True]
    return events


def kind_of(event: JobEvent) -> str:
    return event.WhichOneof("event") or ""


def steps_of(events: list[JobEvent]) -> list[int]:
    """The steps that were reported, in order."""
    return [event.progress.step for event in events if kind_of(event) == "progress"]


async def finished(client: Client, spec: JobSpec) -> Job:
    """Run a job to its end; the job as it then is."""
    accepted = await client.submit(spec)
    await events_of(client, accepted.job_id)
    return await client.job(accepted.job_id)


async def reached(client: Client, job_id: str, step: int) -> None:
    """Wait until a job has done so many steps."""
    async for event in client.watch(job_id):
        if event.progress.step >= step:
            return
    raise AssertionError("it ended before")
