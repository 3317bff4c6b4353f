"""A job from submit to download."""

from tests.integration.router.bench import Bench, kinds
from triptych.v1.job_pb2 import JOB_STATE_SUCCEEDED


async def test_a_job_goes_through_three_stages(bench: Bench) -> None:
    job = await bench.submit()
    events = await bench.events(job.job_id)
    assert kinds(events) == [
        "queued",
        "stage_started",
        "encoded",
        "stage_started",
        "stage_started",
        "output",
        "succeeded",
    ]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    done = await bench.job(job.job_id)
    assert done.state == JOB_STATE_SUCCEEDED
    assert done.last_sequence == events[-1].sequence
    assert await bench.download(job.job_id) == b"output of 7"
