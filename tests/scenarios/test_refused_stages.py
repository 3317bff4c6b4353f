"""A stage of a model that every worker refuses: who waits for it fails, and nobody else."""

from services.router.core.actions import FinishJob, StopTask
from services.router.core.events import JobSubmitted, LatentsReady, StageRefused, TaskFinished, WorkerLost
from services.router.core.job import Stage
from tests.scenarios.story import decode, denoise, encode, start
from tests.scenarios.trio import denoising
from tests.scenarios.virtual_clock import request

WHY = "weights are truncated"


def given_up(job_id: str) -> FinishJob:
    return FinishJob(job_id, "failed", "MODEL_UNAVAILABLE", WHY)


def test_those_that_wait_for_it_fail_and_those_that_it_runs_go_on() -> None:
    story = denoising("a", "b")
    story.at(1.0, StageRefused(Stage.DENOISE, "m", WHY), given_up("b"))
    story.at(2.0, TaskFinished(denoise("a"), 4.0), start(decode("a"), "d"))
    story.at(3.0, TaskFinished(decode("a"), 1.0), FinishJob("a", "succeeded"))


def test_what_else_runs_of_such_a_job_is_stopped() -> None:
    story = denoising("a", outputs=2)
    story.tell(1.0, WorkerLost("d"))
    story.at(2.0, LatentsReady("a", 0))
    story.at(3.0, StageRefused(Stage.DECODE, "m", WHY), StopTask(denoise("a"), "n"), given_up("a"))


def test_jobs_of_other_models_and_those_that_have_not_come_so_far_wait() -> None:
    story = denoising("a")
    story.at(1.0, StageRefused(Stage.DENOISE, "n", WHY))
    story.at(1.0, JobSubmitted(request("b", 4.0)), start(encode("b"), "e"))
    story.at(2.0, StageRefused(Stage.DENOISE, "m", WHY))
    story.at(3.0, TaskFinished(encode("b"), 0.0))
    story.at(4.0, StageRefused(Stage.DENOISE, "m", WHY), given_up("b"))
