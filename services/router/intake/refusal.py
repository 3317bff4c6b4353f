"""What a client is told whose job the scheduler does not take."""

from services.router.core.actions import Verdict
from triptych.errors import Reason, TriptychError

NO_WORKER_RETRY_S = 2.0


def refusal(verdict: Verdict, total_s: float) -> TriptychError:
    """Admission's no to a job of this estimate, with its figures."""
    reason = Reason[verdict.reason]
    words = {
        Reason.OVERLOADED: "Too much work is ahead of a job of this length; try again later, or a shorter one.",
        Reason.QUEUE_FULL: "The queue is full; try again later.",
        Reason.TOO_LONG: "The job is longer than any pool takes.",
        Reason.DEADLINE_UNREACHABLE: "The job would not be done by its deadline.",
        Reason.NO_WORKER: f"No worker has run {_stages(verdict)} of the model of late: start one, or try again later.",
    }
    retry_after_s: float | None = verdict.retry_after_s
    if reason is Reason.NO_WORKER:
        retry_after_s = NO_WORKER_RETRY_S
    elif reason not in (Reason.OVERLOADED, Reason.QUEUE_FULL):
        retry_after_s = None
    assert verdict.wait_s is not None, "a refusal says when the job would have started"
    metadata = {
        "pool": verdict.pool,
        "estimate_s": f"{total_s:.3f}",
        "backlog_s": f"{verdict.backlog_s:.3f}",
        "limit_s": f"{verdict.limit_s:.3f}",
        "wait_s": f"{verdict.wait_s:.3f}",
    }
    return TriptychError(reason, words[reason], metadata=metadata, retry_after_s=retry_after_s)


def _stages(verdict: Verdict) -> str:
    return " and ".join(stage.value for stage in verdict.missing)
