"""What a client is told whose job the scheduler does not take."""

from collections.abc import Sequence

from services.router.core.actions import Verdict
from services.router.workers.fleet import Refusal
from triptych.errors import Reason, TriptychError

NO_WORKER_RETRY_S = 2.0
_MAX_REASONS = 3


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


def unavailable(model: str, barring: Sequence[Refusal]) -> TriptychError:
    """No to a job of a model of which a stage cannot be served, with the workers' reasons, each once."""
    reasons: dict[str, list[str]] = {}
    for each in barring:
        stages = reasons.setdefault(each.reason, [])
        if each.stage.value not in stages:
            stages.append(each.stage.value)
    words = [f"no worker can {' or '.join(stages)}: {why}" for why, stages in list(reasons.items())[:_MAX_REASONS]]
    return TriptychError(
        Reason.MODEL_UNAVAILABLE,
        f"The model {model} cannot be served; {'; '.join(words)}",
        metadata={"workers": ", ".join(sorted(each.worker_id for each in barring))},
    )


def _stages(verdict: Verdict) -> str:
    return " and ".join(stage.value for stage in verdict.missing)
