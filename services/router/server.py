"""The router's gRPC face."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Any, Protocol, cast

from services.router.access.principal import Principal, caller
from services.router.access.quotas import Quotas
from services.router.desk import Desk
from services.router.ids import check_job_id
from services.router.intake.attendance import Call
from services.router.leadership.forward import call_of, is_forwarded, left_call
from services.router.reads import views
from services.router.reads.downloads import Downloads, find_output
from services.router.reads.fleet_watch import check_interval
from services.router.reads.listing import Listing
from services.router.reads.watch import Watch
from triptych.errors import Reason, TriptychError
from triptych.rpc.typing import Context
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import Job, Output, Preview
from triptych.v1.router_service_pb2_grpc import RouterServiceServicer

SERVICE_NAME = "triptych.v1.RouterService"


class Reads(Protocol):
    """What the calls are answered from that change nothing."""

    @property
    def watch(self) -> Watch: ...
    @property
    def listing(self) -> Listing: ...
    @property
    def downloads(self) -> Downloads: ...


class RouterServer(RouterServiceServicer):
    """Serves `RouterService`. Until `desk` is set every call is answered NOT_READY."""

    def __init__(self, max_streams: int, quotas: Quotas | None = None) -> None:
        self.desk: Desk | None = None
        self._free_streams = max_streams
        self._quotas = quotas or Quotas()

    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Context) -> pb.SubmitJobResponse:
        return pb.SubmitJobResponse(job=await self._open.intake.submit(request.spec, request.request_id, caller()))

    async def WatchJob(
        self, request: pb.WatchJobRequest, context: Context
    ) -> AsyncGenerator[pb.WatchJobResponse, None]:
        with self._stream():
            job_id = check_job_id(request.job_id)
            watched = self._reads.watch.follow(job_id, request.after_sequence, caller())
            async with aclosing(watched) as items:
                async for item in items:
                    if isinstance(item, Preview):
                        yield pb.WatchJobResponse(preview=item)
                    else:
                        yield pb.WatchJobResponse(event=item)

    async def GenerateMedia(
        self, request: pb.GenerateMediaRequest, context: Context
    ) -> AsyncGenerator[pb.GenerateMediaResponse, None]:
        with self._stream():
            async with aclosing(self.generate(request, context)) as responses:
                async for response in responses:
                    yield response

    async def generate(
        self, request: pb.GenerateMediaRequest, context: Context
    ) -> AsyncGenerator[pb.GenerateMediaResponse, None]:
        """As `GenerateMedia`, for a caller that has counted the stream."""
        desk, who, call = self._open, caller(), Call(call_of(context))
        submission = asyncio.ensure_future(desk.intake.submit(request.spec, request.request_id, who, call=call))
        # Called when the call is over for any reason, before or after the job is; a job that is over stays so.
        # The stubs name a class where any callable will do.
        context.add_done_callback(cast(Any, _Departure(desk, submission, call)))
        job = await asyncio.shield(submission)
        yield pb.GenerateMediaResponse(accepted=job)
        async with aclosing(desk.watch.follow(job.job_id, 0, who)) as items:
            async for item in items:
                if isinstance(item, Preview):
                    yield pb.GenerateMediaResponse(preview=item)
                    continue
                yield pb.GenerateMediaResponse(job_event=item)
                if item.WhichOneof("event") == "output":
                    try:
                        async for chunk in desk.downloads.chunks(item.output):
                            yield pb.GenerateMediaResponse(chunk=chunk)
                    except TriptychError as error:
                        # Of one that is made again another event tells.
                        if not await _is_withdrawn(item.output, error, desk.watch, job.job_id):
                            raise

    async def GetJob(self, request: pb.GetJobRequest, context: Context) -> pb.GetJobResponse:
        return pb.GetJobResponse(job=await self._reads.watch.job(check_job_id(request.job_id), caller()))

    async def ListJobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:
        jobs, token = await self._reads.listing.page(request.page_size, request.page_token, request.states, caller())
        return pb.ListJobsResponse(jobs=jobs, next_page_token=token)

    async def CancelJob(self, request: pb.CancelJobRequest, context: Context) -> pb.CancelJobResponse:
        desk = self._open
        job = await desk.watch.job(check_job_id(request.job_id), caller())
        if left := left_call(context):
            desk.attendance.leave(left, job.job_id)
            return pb.CancelJobResponse(job=job)
        desk.driver.cancel(job.job_id)
        return pb.CancelJobResponse(job=await desk.disk.answered(desk.watch.ended(job.job_id, caller())))

    async def EstimateJob(self, request: pb.EstimateJobRequest, context: Context) -> pb.EstimateJobResponse:
        return views.estimate_view(*await self._open.intake.judge(request.spec, caller()))

    async def DownloadOutput(
        self, request: pb.DownloadOutputRequest, context: Context
    ) -> AsyncGenerator[pb.DownloadOutputResponse, None]:
        with self._stream():
            job_id = check_job_id(request.job_id)
            output = find_output(await self._reads.watch.job(job_id, caller()), request.output_index)
            first = True
            while first:
                try:
                    async for chunk in self._reads.downloads.chunks(output):
                        if first:  # not before the data is at hand: an output that is gone is an error from the start
                            yield pb.DownloadOutputResponse(output=output)
                            first = False
                        yield pb.DownloadOutputResponse(chunk=chunk)
                except TriptychError as error:
                    if not await _is_withdrawn(output, error, self._reads.watch, job_id):
                        raise
                    # It is made again, or is there again.
                    output = find_output(await self._reads.watch.job(job_id, caller()), request.output_index)

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        return views.models(self._open.catalog, self._open.driver.fleet)

    async def GetFleet(self, request: pb.GetFleetRequest, context: Context) -> pb.GetFleetResponse:
        return _fleet_view(self._open, caller())

    async def AmendJob(self, request: pb.AmendJobRequest, context: Context) -> pb.AmendJobResponse:
        desk = self._open
        job = await desk.watch.job(check_job_id(request.job_id), caller())
        desk.disk.check()
        amending = desk.amend.job(job.tenant, job.job_id, request.amendment, request.request_id)
        amended = await desk.disk.answered(amending)
        return pb.AmendJobResponse(job=amended)

    async def WatchFleet(
        self, request: pb.WatchFleetRequest, context: Context
    ) -> AsyncGenerator[pb.WatchFleetResponse, None]:
        with self._stream():
            async with aclosing(self.watch_fleet(request)) as responses:
                async for response in responses:
                    yield response

    async def watch_fleet(self, request: pb.WatchFleetRequest) -> AsyncGenerator[pb.WatchFleetResponse, None]:
        """As `WatchFleet`, for a caller that has counted the stream."""
        desk, who = self._open, caller()
        async for response in desk.driver.watch.follow(
            check_interval(request),
            lambda: _fleet_view(desk, who),
            lambda decision: views.may_see(decision.job_id, desk.jobs, who),
        ):
            yield response

    @property
    def _reads(self) -> Reads:
        return self._open

    @property
    def _open(self) -> Desk:
        if self.desk is None:
            raise TriptychError(Reason.NOT_READY, "The router is starting.", retry_after_s=0.5)
        return self.desk

    @contextmanager
    def _stream(self) -> Iterator[None]:
        if self._free_streams <= 0:
            raise TriptychError(Reason.TOO_MANY_STREAMS, "Too many streams are open; try again.", retry_after_s=1.0)
        with self._quotas.stream(caller().tenant):
            self._free_streams -= 1
            try:
                yield
            finally:
                self._free_streams += 1


async def _is_withdrawn(output: Output, error: TriptychError, watch: Watch, job_id: str) -> bool:
    """Whether the output could not be read because the job has given it back."""
    if error.reason is not Reason.OUTPUT_GONE:
        return False
    job = await watch.job(job_id, caller())
    return all(each.data.bundle_id != output.data.bundle_id for each in job.outputs)


def _fleet_view(desk: Desk, who: Principal) -> pb.GetFleetResponse:
    driver = desk.driver
    return views.fleet_view(driver.fleet, driver.scheduler, desk.pricing, desk.epoch, desk.jobs, who)


class _Departure:
    """Tells the desk that a generation's call is over, once what it asked for has been answered.

    The client has gone if it called here, and the call was not ended here: of a call that another router sent on
    nobody knows. While the router drains, it is the router that goes.
    """

    def __init__(self, desk: Desk, submission: "asyncio.Future[Job]", call: Call) -> None:
        self._desk = desk
        self._submission = submission
        self._call = call

    def __call__(self, context: Context) -> None:
        client_gone = not context.done() and not is_forwarded(context)
        self._submission.add_done_callback(partial(self._go, client_gone))

    def _go(self, client_gone: bool, submission: "asyncio.Future[Job]") -> None:
        _ = submission.cancelled() or submission.exception()  # raised where it was awaited, if it was
        if not self._desk.driver.draining:
            self._desk.attendance.go(self._call, at_once=client_gone)
