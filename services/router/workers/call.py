"""One call to a worker, while it is under way."""

import asyncio
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import structlog

from services.router.core.actions import StartTask
from services.router.core.job import Task
from services.router.jobs import LiveJob
from services.router.store.recorder import Recorder
from services.router.workers.known_worker import KnownWorker
from triptych.rpc.at_work import is_at_work
from triptych.v1 import job_pb2
from triptych.v1.encoder_service_pb2 import StageCall
from triptych.v1.job_pb2 import Conditioning, JobEvent, StageStarted

log = structlog.get_logger()

_Response = TypeVar("_Response")


@dataclass(eq=False)
class Call:
    """One call under way. `begun`: the worker has said that it is at work, which is lost if it dies.

    `conditioning` is the job's when the call began: it may be made again meanwhile.
    """

    job: LiveJob
    start: StartTask
    worker: KnownWorker
    recorder: Recorder
    conditioning: tuple[Conditioning, ...] = ()
    begun: bool = False
    running: "asyncio.Task[None] | None" = None

    @property
    def task(self) -> Task:
        return self.start.task

    @property
    def device(self) -> str:
        """The worker's device, as its heartbeat names it."""
        return self.worker.heartbeat.device

    @property
    def log(self) -> Any:
        """A logger that knows the call. Not by context: reports run the scheduler, which acts on other jobs too."""
        return log.bind(job_id=self.task.job_id, stage=self.task.stage.value, worker=self.worker.worker_id)

    @property
    def outdated(self) -> bool:
        """Whether the job's conditioning was made again since."""
        return self.conditioning != tuple(self.job.record.conditioning)

    def message(self, epoch: int) -> StageCall:
        """What the worker is told of it."""
        return StageCall(
            job_id=self.task.job_id,
            attempt=self.start.attempt,
            epoch=epoch,
            rank=self.start.rank,
            tenant=self.job.tenant,
        )

    def event(self, **kind: object) -> JobEvent:
        """An event of this attempt."""
        return JobEvent(attempt=self.start.attempt, **kind)  # type: ignore[arg-type]

    def started(self, stage: job_pb2.Stage.ValueType) -> JobEvent:
        """The event that the stage has begun here."""
        return self.event(stage_started=StageStarted(stage=stage, worker_id=self.worker.worker_id))

    def part_done(self, fraction: float) -> float:
        """How much of what it is to do is done, when `fraction` of all the job's outputs is."""
        return part_done(fraction, len(self.start.finished_outputs), self.job.request.output_count)

    async def answer(self, rpc: "grpc.aio.UnaryUnaryCall[Any, _Response]") -> _Response:
        """What the worker answers; that it is at work shows before. If nobody waits any more, the RPC is cancelled."""
        try:
            self.begun = is_at_work(await rpc.initial_metadata())
            return await rpc
        finally:
            rpc.cancel()


def part_done(fraction: float, finished_count: int, output_count: int) -> float:
    """How much of what a call is to do is done, when `fraction` of all outputs is: some were finished before it."""
    kept = finished_count / output_count
    return max(0.0, (fraction - kept) / (1.0 - kept)) if kept < 1.0 else 1.0
