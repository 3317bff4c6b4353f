"""A job is what its log tells."""

from typing import Any

import pytest

from services.router.store.fold import apply, end_of
from triptych.endings import is_over
from triptych.v1 import job_pb2 as pb


def event(sequence: int, **kind: Any) -> pb.JobEvent:
    return pb.JobEvent(sequence=sequence, **kind)


@pytest.mark.parametrize(
    "end",
    [
        {"succeeded": pb.JobSucceeded()},
        {"cancelled": pb.JobCancelled()},
        {"cancelled": pb.JobCancelled(reason="CLIENT_GONE")},
        {"failed": pb.JobFailed(error={"code": 3, "message": "no"})},
    ],
)
def test_how_a_job_ended_outlives_its_log(end: dict[str, Any]) -> None:
    job, last = pb.Job(job_id="j", attempt=2), event(7, job_id="j", attempt=2, time={"seconds": 5}, **end)
    apply(job, last)
    assert end_of(job) == last


def test_a_job_is_what_its_log_tells() -> None:
    job = pb.Job(job_id="j")
    steps: list[tuple[dict[str, Any], int, int]] = [
        ({"queued": pb.JobQueued(pool="p", rank=2.0)}, pb.JOB_STATE_QUEUED, pb.STAGE_UNSPECIFIED),
        ({"stage_started": pb.StageStarted(stage=pb.STAGE_ENCODE)}, pb.JOB_STATE_QUEUED, pb.STAGE_ENCODE),
        ({"encoded": pb.JobEncoded(cached=True)}, pb.JOB_STATE_QUEUED, pb.STAGE_UNSPECIFIED),
        ({"stage_started": pb.StageStarted(stage=pb.STAGE_DENOISE)}, pb.JOB_STATE_RUNNING, pb.STAGE_DENOISE),
        ({"progress": pb.Progress(fraction=0.5)}, pb.JOB_STATE_RUNNING, pb.STAGE_DENOISE),
        ({"requeued": pb.JobRequeued(stage=pb.STAGE_DENOISE)}, pb.JOB_STATE_QUEUED, pb.STAGE_UNSPECIFIED),
        ({"stage_started": pb.StageStarted(stage=pb.STAGE_DENOISE)}, pb.JOB_STATE_RUNNING, pb.STAGE_DENOISE),
        ({"stage_started": pb.StageStarted(stage=pb.STAGE_DECODE)}, pb.JOB_STATE_RUNNING, pb.STAGE_DECODE),
        ({"requeued": pb.JobRequeued(stage=pb.STAGE_DECODE)}, pb.JOB_STATE_RUNNING, pb.STAGE_DECODE),
        ({"output": pb.Output(index=1)}, pb.JOB_STATE_RUNNING, pb.STAGE_DECODE),
        (
            {"requeued": pb.JobRequeued(stage=pb.STAGE_DECODE, withdrawn_outputs=[1])},
            pb.JOB_STATE_RUNNING,
            pb.STAGE_DECODE,
        ),
        ({"output": pb.Output(index=1)}, pb.JOB_STATE_RUNNING, pb.STAGE_DECODE),
        ({"output": pb.Output(index=0)}, pb.JOB_STATE_RUNNING, pb.STAGE_DECODE),
        ({"succeeded": pb.JobSucceeded()}, pb.JOB_STATE_SUCCEEDED, pb.STAGE_UNSPECIFIED),
    ]
    for sequence, (kind, state, stage) in enumerate(steps, 1):
        apply(job, event(sequence, attempt=2 if sequence > 6 else 1, **kind))
        assert (job.state, job.stage, job.last_sequence) == (state, stage, sequence)
        assert is_over(job) is (sequence == len(steps))
    assert (job.pool, job.rank, job.conditioning_cached, job.attempt) == ("p", 2.0, True, 2)
    assert [output.index for output in job.outputs] == [0, 1]
