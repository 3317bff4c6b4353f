"""Whether a client of a job is there."""

import pytest

from services.router.core.job import JobRequest, StageSeconds
from services.router.intake.attendance import Attendance, Call
from services.router.jobs import JobTable, LiveJob
from triptych.v1.job_pb2 import Job, JobRecord, JobSpec


class Scene:
    """A job of streams alone, and what was cancelled."""

    def __init__(self) -> None:
        self.cancelled: list[tuple[str, str]] = []
        jobs = JobTable(10, 60.0)
        self.attendance = Attendance(60.0, jobs, lambda job_id, reason: self.cancelled.append((job_id, reason)))
        record = JobRecord(job=Job(job_id="job", tenant="default"), streamed=True)
        request = JobRequest("job", "default", "m", "standard", StageSeconds(1, 1, 1))
        self.job = LiveJob(record, JobSpec(), request)
        jobs.add(self.job)


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_a_call_that_is_sent_on_again_is_there_although_its_first_is_over(scene: Scene) -> None:
    first, again = Call("sent on"), Call("sent on")
    scene.attendance.come(scene.job, first)
    scene.attendance.come(scene.job, again)
    scene.attendance.go(first, at_once=False)
    scene.attendance.leave("another", "job")  # cancels a job that is waited for
    assert scene.cancelled == []
    scene.attendance.leave("sent on", "job")
    assert scene.cancelled == [("job", "CLIENT_GONE")]


async def test_a_client_that_has_gone_is_not_waited_for_whatever_is_heard_first(scene: Scene) -> None:
    call = Call("sent on")
    scene.attendance.come(scene.job, call)
    scene.attendance.go(call, at_once=False)
    scene.attendance.leave("sent on", "job")
    assert scene.cancelled == [("job", "CLIENT_GONE")]
    scene.attendance.go(call, at_once=True)
    assert len(scene.cancelled) == 1


async def test_nobody_leaves_anothers_job(scene: Scene) -> None:
    call = Call("sent on")
    scene.attendance.come(scene.job, call)
    scene.attendance.leave("sent on", "another job")
    assert scene.cancelled == []


async def test_a_job_that_is_kept_needs_no_client(scene: Scene) -> None:
    call = Call("here")
    scene.attendance.come(scene.job, call)
    scene.attendance.keep(scene.job)
    scene.attendance.go(call, at_once=True)
    scene.attendance.miss("job")
    scene.attendance.leave("here", "job")
    assert scene.cancelled == []
