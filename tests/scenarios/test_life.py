"""One job from submission to its end, step by step."""

from services.router.core.actions import AdmitJob, FinishJob, StartTask
from services.router.core.config import SchedulerConfig
from services.router.core.events import JobSubmitted, LatentsReady, TaskFinished, WorkerSeen
from services.router.core.job import Stage, Task
from services.router.core.scheduler import Scheduler
from tests.scenarios.invariants import check
from tests.scenarios.virtual_clock import request, worker


def test_a_job_is_encoded_denoised_and_decoded_output_by_output() -> None:
    scheduler = Scheduler(SchedulerConfig())
    for info in (worker("e", Stage.ENCODE), worker("n", Stage.DENOISE), worker("d", Stage.DECODE)):
        assert scheduler.handle(WorkerSeen(info), 0.0) == []
    encode, denoise = Task("a", Stage.ENCODE), Task("a", Stage.DENOISE)
    decodes = [Task("a", Stage.DECODE, 0), Task("a", Stage.DECODE, 1)]

    job = request("a", 4.0, encode_s=1.0, decode_s=2.0, outputs=2)
    admit, start = scheduler.handle(JobSubmitted(job), 10.0)
    assert isinstance(admit, AdmitJob)
    assert (admit.verdict.pool, admit.verdict.rank) == ("interactive", 10.0 + 4 * 7.0)
    assert start == StartTask(encode, "e", 38.0, attempt=1, reason="least to do")

    assert scheduler.handle(TaskFinished(encode, 1.0), 11.0) == [
        StartTask(denoise, "n", 38.0, attempt=1, reason="idle")
    ]
    assert scheduler.handle(LatentsReady("a", 0), 13.0) == [
        StartTask(decodes[0], "d", 38.0, attempt=1, reason="least to do")
    ]
    assert scheduler.handle(TaskFinished(decodes[0], 1.0), 14.0) == []
    assert scheduler.handle(TaskFinished(denoise, 4.0), 15.0) == [
        StartTask(decodes[1], "d", 38.0, attempt=1, reason="least to do")
    ]
    assert scheduler.handle(TaskFinished(decodes[1], 1.0), 16.0) == [FinishJob("a", "succeeded")]
    check(scheduler)
    assert scheduler.job("a") is None
