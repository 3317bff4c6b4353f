"""Events that happen to the scheduler. A driver (the live router or the simulator) reports each as it happens.

A report is about the call that the latest `StartTask` of its task asked for. Once a call was stopped, reported failed
or gone, or its worker was reported lost, the driver reports nothing more of it; a report on a task that is not running
is ignored.
"""

from dataclasses import dataclass

from services.router.core.config import SchedulerConfig
from services.router.core.job import JobRequest, Stage, Task, Tries, WorkerInfo


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    """A client wants a job run. Answered by `AdmitJob` or `RejectJob`.

    `encoded`: its conditioning is there already; `refines`: it goes on from another job's latents, kept for it.
    """

    request: JobRequest
    encoded: bool = False
    refines: bool = False


@dataclass(frozen=True, slots=True)
class JobRestored:
    """A job accepted by an earlier router is taken up again with its stored rank and pool; no admission.

    `attempt` is how often its denoise was started. `finished` are the tasks whose results are known to be still on the
    exchange (a denoise: the latents of every output), `latents` the outputs whose latents are while the denoise is not
    finished, `tries` what was tried in vain before, `saved` the furthest point (output, step) that its denoise could go
    on from; `refines` as of `JobSubmitted`. Ignored if the job is known.
    """

    request: JobRequest
    rank: float
    pool: str
    attempt: int
    finished: frozenset[Task]
    latents: frozenset[int] = frozenset()
    tries: tuple[Tries, ...] = ()
    saved: tuple[int, int] = (0, 0)
    refines: bool = False

    @property
    def decoded(self) -> frozenset[int]:
        """The outputs that are there."""
        return frozenset(task.output_index for task in self.finished if task.stage is Stage.DECODE)


@dataclass(frozen=True, slots=True)
class JobCancelRequested:
    """Answered by `StopTask` for whatever runs and `FinishJob` (outcome cancelled); by nothing if unknown or over.

    `reason` is told with the end: "" if somebody asked for it.
    """

    job_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobAmendRequested:
    """A job is to run another number of steps: `request` is the job as it would be, its price that of all of it.

    Answered by `AmendJob` or `RejectAmendment`; by nothing if the job is unknown or over.
    """

    request: JobRequest


@dataclass(frozen=True, slots=True)
class WorkerSeen:
    """A worker joined, or its heartbeat changed what it offers."""

    worker: WorkerInfo


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """A worker has gone, and the driver has given up its calls to it: what it ran is run again.

    `unbegun`: tasks that had not reached it. Its death is none of theirs. `death` numbers what `WorkerReturned` may
    refute; 0: nothing will.
    """

    worker_id: str
    unbegun: frozenset[Task] = frozenset()
    death: int = 0


@dataclass(frozen=True, slots=True)
class WorkerReturned:
    """What was taken for a worker's death, by the numbers of `WorkerLost`, was none: it is held against no job."""

    deaths: frozenset[int]


@dataclass(frozen=True, slots=True)
class StageRefused:
    """No worker serves a stage of a model, those that there are cannot, and that has been so for too long.

    Jobs of the model that wait for the stage fail, with `blame` for a person. Reported as often as it is so.
    """

    stage: Stage
    model: str
    blame: str


@dataclass(frozen=True, slots=True)
class TaskProgressed:
    """`fraction` (0 to 1) of what the latest `StartTask` of the task asked for is done."""

    task: Task
    fraction: float


@dataclass(frozen=True, slots=True)
class TaskSaved:
    """Another try of the denoise would go on from here: `step` steps of this output, all of those before it."""

    task: Task
    output_index: int
    step: int


@dataclass(frozen=True, slots=True)
class LatentsReady:
    """The denoise task goes on, but one output's latents are durable: its decode may start."""

    job_id: str
    output_index: int


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """The task's result is durable. `seconds` is the device time measured."""

    task: Task
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """The task ended without a result.

    `retryable`: another try may succeed (a worker died, was full, or drained). `counts`: the try is held against the
    job. `blame` says why, in words for a person. `awaits_room`: a store was full; the task is put back as often as it
    takes, for no accepted job is lost to that.
    """

    task: Task
    reason: str
    blame: str
    retryable: bool
    counts: bool
    awaits_room: bool = False


@dataclass(frozen=True, slots=True)
class ResultGone:
    """`task` ended because what stage `made_by` had made for it has left the exchange: that stage runs again.

    Made by the encode: the job's conditioning, for a denoise or a decode; by the denoise: the latents of a decode's
    output. Bounded, and no attempt is spent.
    """

    task: Task
    made_by: Stage


@dataclass(frozen=True, slots=True)
class EncodesBounded:
    """There is little room for conditioning: fewer jobs may be encoded before a denoiser is free.

    So many of each pool, model and length, if that is less than `encode_ahead_jobs`; None: there is room again.
    """

    ahead_jobs: int | None


@dataclass(frozen=True, slots=True)
class ConfigReloaded:
    """The operator has set the scheduler anew. What was accepted stays, with its rank; what runs goes on where it is.

    Jobs whose pool is no more go to the first that takes them.
    """

    config: SchedulerConfig


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed; back-offs may be over."""


Event = (
    JobSubmitted
    | JobRestored
    | JobCancelRequested
    | JobAmendRequested
    | WorkerSeen
    | WorkerLost
    | StageRefused
    | WorkerReturned
    | TaskProgressed
    | TaskSaved
    | LatentsReady
    | TaskFinished
    | TaskFailed
    | ResultGone
    | EncodesBounded
    | ConfigReloaded
    | Ticked
)
