"""Actions that the scheduler asks for. A driver performs each, in order, and reports what came of it as an event."""

from dataclasses import dataclass

from services.router.core.job import Stage, Task


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of admission to a job, and why.

    `reason` is "" if admitted, else one of "OVERLOADED", "TOO_LONG", "DEADLINE_UNREACHABLE", "NO_WORKER", "QUEUE_FULL".
    `backlog_s` is the remaining seconds per worker that are due before its end, or before that of a shorter job that
    would be shed, `limit_s` the most that such a job may find. `retry_after_s` is the predicted time until it would be
    admitted (0 if admitted, or where waiting does not help or its end cannot be predicted). `wait_s` predicts the time
    until its denoise starts; None for an admitted job unless it was asked for: `Scheduler.job` knows. `missing` are the
    stages that no worker runs for the model, whether the job is refused or waits for them.
    """

    admitted: bool
    reason: str
    pool: str
    rank: float
    backlog_s: float
    limit_s: float
    retry_after_s: float
    wait_s: float | None
    missing: tuple[Stage, ...] = ()


@dataclass(frozen=True, slots=True)
class AdmitJob:
    """Make the job durable, then answer its client."""

    job_id: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class RejectJob:
    """Refuse the job; the scheduler has forgotten it."""

    job_id: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class AmendJob:
    """Make the change durable, tell the worker that denoises the job (None: none does), then answer the client.

    `verdict.rank` is the job's rank from now on.
    """

    job_id: str
    verdict: Verdict
    worker_id: str | None


@dataclass(frozen=True, slots=True)
class RejectAmendment:
    """Refuse the change; the job goes on as it was."""

    job_id: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class StartTask:
    """Call the worker. `attempt` counts starts of the job's denoise, from 1 (an encode names the attempt it is for).

    `finished_outputs`, for a denoise: outputs whose latents or pixels are durable and need not be made again. `rank` is
    the job's place among those of the worker. `reason` says in words why this worker; `moved_from` is the worker on
    which the job was paused, or "".
    """

    task: Task
    worker_id: str
    rank: float
    attempt: int
    finished_outputs: frozenset[int] = frozenset()
    reason: str = ""
    moved_from: str = ""


@dataclass(frozen=True, slots=True)
class StopTask:
    """Cancel the call; whatever it still reports is ignored.

    `reason`: "ended" (its job has), "moved" (it starts elsewhere), "reclaimed" (by the worker's own pool), or "made
    room" (for another job, by what it was at work on).
    """

    task: Task
    worker_id: str
    reason: str = "ended"


@dataclass(frozen=True, slots=True)
class RequeueJob:
    """Tell the job's watchers that `stage` of the job waits to be run again, and why."""

    job_id: str
    attempt: int
    reason: str
    stage: Stage = Stage.DENOISE


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Make room for job `taker`: remove what `stage` has made of the job, and tell the job's watchers.

    Of a decode these outputs; of a denoise all latents, those it goes on from too, and the checkpoint. They are made
    again.
    """

    job_id: str
    attempt: int
    stage: Stage
    taker: str
    outputs: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class FinishJob:
    """The job is over. `outcome` is "succeeded", "failed" or "cancelled"; `reason` and `blame` are set if it failed.

    Of a cancelled job `reason` says why, if nobody asked for it.
    """

    job_id: str
    outcome: str
    reason: str = ""
    blame: str = ""


Action = AdmitJob | RejectJob | AmendJob | RejectAmendment | StartTask | StopTask | RequeueJob | GiveBack | FinishJob
