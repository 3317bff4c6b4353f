"""A real gRPC server that plays a router's part from a script: it fails when told to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from triptych.errors import Reason, TriptychError
from triptych.rpc import RpcServer
from triptych.rpc.typing import Context
from triptych.v1 import job_pb2, router_service_pb2, router_service_pb2_grpc

JOB = "0123456789abcdef"
STEPS = 5


class ScriptedRouter(router_service_pb2_grpc.RouterServiceServicer):
    """One job of `STEPS` events and an end. Each error in `failures` meets one call, in order; None lets it pass.

    A watched stream breaks after each of its events while `broken_streams` lasts.
    """

    def __init__(self) -> None:
        self.failures: list[TriptychError | None] = []
        self.broken_streams = 0
        self.watched_from: list[int] = []
        self.request_ids: list[str] = []
        self.cancelled: list[str] = []
        self.holding = asyncio.Event()
        self.released = asyncio.Event()
        self.hold_at: int | None = None

    async def SubmitJob(
        self, request: router_service_pb2.SubmitJobRequest, context: Context
    ) -> router_service_pb2.SubmitJobResponse:
        self.request_ids.append(request.request_id)
        self._fail()
        return router_service_pb2.SubmitJobResponse(job=job_pb2.Job(job_id=JOB, spec=request.spec))

    async def WatchJob(
        self, request: router_service_pb2.WatchJobRequest, context: Context
    ) -> AsyncIterator[router_service_pb2.WatchJobResponse]:
        self._fail()
        self.watched_from.append(request.after_sequence)
        # One event is repeated after a break, as a careless server might.
        first = max(1, request.after_sequence) if request.after_sequence <= STEPS else STEPS + 2
        for sequence in range(first, STEPS + 2):
            if sequence == self.hold_at:
                self.holding.set()
                await self.released.wait()
            yield router_service_pb2.WatchJobResponse(event=_event(sequence))
            if sequence > request.after_sequence and self.broken_streams:
                self.broken_streams -= 1
                raise TriptychError(Reason.EXCHANGE_UNAVAILABLE, "broken by the script")

    async def GetJob(
        self, request: router_service_pb2.GetJobRequest, context: Context
    ) -> router_service_pb2.GetJobResponse:
        job = job_pb2.Job(job_id=JOB, state=job_pb2.JOB_STATE_SUCCEEDED, last_sequence=STEPS + 1)
        return router_service_pb2.GetJobResponse(job=job)

    async def CancelJob(
        self, request: router_service_pb2.CancelJobRequest, context: Context
    ) -> router_service_pb2.CancelJobResponse:
        self.cancelled.append(request.job_id)
        return router_service_pb2.CancelJobResponse(job=job_pb2.Job(job_id=request.job_id))

    async def ListJobs(
        self, request: router_service_pb2.ListJobsRequest, context: Context
    ) -> router_service_pb2.ListJobsResponse:
        first = int(request.page_token or 0)
        jobs = [job_pb2.Job(job_id=str(number)) for number in range(first, min(first + request.page_size, 450))]
        following = str(first + len(jobs)) if first + len(jobs) < 450 else ""
        return router_service_pb2.ListJobsResponse(jobs=jobs, next_page_token=following)

    async def DownloadOutput(
        self, request: router_service_pb2.DownloadOutputRequest, context: Context
    ) -> AsyncIterator[router_service_pb2.DownloadOutputResponse]:
        yield router_service_pb2.DownloadOutputResponse(output=job_pb2.Output(index=request.output_index))
        for offset, data in ((0, b"pic"), (3, b"ture")):
            self._fail()
            chunk = router_service_pb2.OutputChunk(offset=offset, data=data)
            yield router_service_pb2.DownloadOutputResponse(chunk=chunk)

    def _fail(self) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure


def _event(sequence: int) -> job_pb2.JobEvent:
    if sequence > STEPS:
        return job_pb2.JobEvent(job_id=JOB, sequence=sequence, succeeded=job_pb2.JobSucceeded())
    return job_pb2.JobEvent(job_id=JOB, sequence=sequence, progress=job_pb2.Progress(step=sequence))


@asynccontextmanager
async def served(router: ScriptedRouter, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    """The address at which the script is played."""

    def register(server: grpc.aio.Server) -> None:
        router_service_pb2_grpc.add_RouterServiceServicer_to_server(router, server)

    server = RpcServer(listen, ["triptych.v1.RouterService"])
    await server.start(register)
    yield server.address
    await server.stop(0)
