"""What the scheduler did, in the contract's words."""

from google.protobuf.timestamp_pb2 import Timestamp

from services.router.core import actions
from services.router.core.actions import (
    Action,
    AdmitJob,
    AmendJob,
    FinishJob,
    GiveBack,
    RejectAmendment,
    RejectJob,
    RequeueJob,
    StartTask,
    StopTask,
)
from services.router.stages import TO_PROTO
from triptych.durations import duration_of
from triptych.v1.router_service_pb2 import Decision, Verdict


def verdict_message(verdict: actions.Verdict) -> Verdict:
    """What admission says of a job."""
    made = Verdict(
        admitted=verdict.admitted,
        reason=verdict.reason,
        pool=verdict.pool,
        backlog=duration_of(verdict.backlog_s),
        limit=duration_of(verdict.limit_s),
    )
    if verdict.wait_s is not None:
        made.wait.CopyFrom(duration_of(verdict.wait_s))
    if not verdict.admitted and verdict.retry_after_s > 0:
        made.retry_after.CopyFrom(duration_of(verdict.retry_after_s))
    return made


def decision(action: Action, pool: str, wait_s: float | None, now_s: float) -> Decision:
    """One action as a decision; `pool` is the job's, or the one that gains a worker; `wait_s` until its denoise."""
    made = _decision(action)
    made.job_id = job_of(action)
    if wait_s is not None:
        made.verdict.wait.CopyFrom(duration_of(wait_s))
    made.pool = made.verdict.pool or pool
    time = Timestamp()
    time.FromNanoseconds(int(now_s * 1e9))
    made.time.CopyFrom(time)
    return made


def job_of(action: Action) -> str:
    """The job that an action is about, "" if it is about none."""
    match action:
        case StartTask(task) | StopTask(task):
            return task.job_id
        case _:
            return action.job_id


def _decision(action: Action) -> Decision:
    match action:
        case AdmitJob(_, verdict):
            return Decision(kind="admitted", verdict=verdict_message(verdict), reason=_admission(verdict))
        case RejectJob(_, verdict):
            return Decision(kind="rejected", verdict=verdict_message(verdict), reason=_admission(verdict))
        case AmendJob(_, verdict, worker_id):
            message = verdict_message(verdict)
            return Decision(kind="amended", verdict=message, worker_id=worker_id or "", reason=_admission(verdict))
        case RejectAmendment(_, verdict):
            why = f"the change is refused: {_admission(verdict)}"
            return Decision(kind="rejected", verdict=verdict_message(verdict), reason=why)
        case StartTask(task, worker_id):
            kind = "moved" if action.moved_from else "started"
            return Decision(kind=kind, stage=TO_PROTO[task.stage], worker_id=worker_id, reason=action.reason)
        case StopTask(task, worker_id, reason):
            return Decision(kind="stopped", stage=TO_PROTO[task.stage], worker_id=worker_id, reason=reason)
        case RequeueJob(_, _, reason, stage):
            return Decision(kind="requeued", stage=TO_PROTO[stage], reason=reason)
        case GiveBack(_, _, stage, taker):
            return Decision(kind="requeued", stage=TO_PROTO[stage], reason=f"makes room for {taker}, which is first")
        case FinishJob(_, outcome, reason, blame):
            return Decision(kind="finished", reason=": ".join(filter(None, (outcome, reason, blame))))


def _admission(verdict: actions.Verdict) -> str:
    ahead = f"{verdict.backlog_s:.1f} s ahead per worker, of {verdict.limit_s:.1f} s allowed"
    return ahead if verdict.admitted else f"{verdict.reason}: {ahead}"
