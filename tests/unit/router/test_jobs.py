"""Jobs in memory: those that are not over, and some that ended of late."""

from typing import Any

import pytest

from services.router import jobs as jobs_module
from services.router.core.job import JobRequest, StageSeconds
from services.router.jobs import JobTable, LiveJob
from services.router.store.event_log import StoredEvent
from triptych.v1 import job_pb2 as pb


def live(job_id: str, request_id: str = "") -> LiveJob:
    record = pb.JobRecord(job=pb.Job(job_id=job_id, tenant="default"), request_id=request_id)
    return LiveJob(record, pb.JobSpec(), JobRequest(job_id, "default", "m", "standard", StageSeconds(1, 1, 1)))


def event(sequence: int, **kind: Any) -> pb.JobEvent:
    return pb.JobEvent(sequence=sequence, **kind)


async def test_events_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "RECENT_EVENTS", 3)
    job = live("a")
    for sequence in range(1, 6):
        job.log(StoredEvent(sequence * 10, event(sequence, progress=pb.Progress(step=sequence))))
    assert job.after(1) is None
    assert [stored.event.sequence for stored in job.after(2) or []] == [3, 4, 5]
    assert [stored.event.sequence for stored in job.after(4) or []] == [5]
    assert job.after(5) == []
    assert job.after(99) == []
    assert job.log_revision == 50


async def test_ended_jobs_are_forgotten_the_oldest_first() -> None:
    table = JobTable(max_ended=2, ended_s=1000.0)
    made = [live(name, f"request-{name}") for name in "abc"]
    for job in made:
        table.add(job)
    assert list(table) == made
    for job in made:
        table.end(job)
    assert list(table) == []
    assert [table.get(name) for name in "abc"] == [None, made[1], made[2]]
    assert table.by_request("default", "request-a") is None
    assert table.by_request("default", "request-c") is made[2]


async def test_what_a_job_took_is_free_when_its_log_says_that_it_is_over() -> None:
    table = JobTable(max_ended=10, ended_s=1000.0)
    job = live("a")
    job.spec.attachments.add(data=b"x" * 10)
    table.add(job)
    assert (table.attachment_bytes, table.of_tenant("default")) == (10, [job])
    # Its record is not written yet.
    job.log(StoredEvent(1, event(1, succeeded=pb.JobSucceeded())))
    assert (table.attachment_bytes, table.of_tenant("default")) == (0, [])
    table.end(job)
    assert table.attachment_bytes == 0


async def test_ended_jobs_are_forgotten_after_a_while() -> None:
    table = JobTable(max_ended=10, ended_s=-1.0)
    job = live("a")
    table.add(job)
    table.end(job)
    assert table.get("a") is None
