"""The router's gRPC face while another one leads: reads are answered here, the rest is sent on."""

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, cast

import structlog

from services.router.access.quotas import Quotas
from services.router.leadership.archive import Archive
from services.router.leadership.forward import Forward, Metadata, Own, Told, call_of, is_forwarded, metadata_of
from services.router.server import Reads, RouterServer
from triptych.errors import TriptychError
from triptych.rpc.typing import Context
from triptych.v1 import router_service_pb2 as pb

log = structlog.get_logger()

_Stream = AsyncGenerator[Any, None]


class StandbyServer(RouterServer):
    """Serves `RouterService` beside `leading`, which takes over what is under way when this router begins to lead.

    What it answers itself: GetJob, ListJobs, WatchJob, DownloadOutput. They go on whoever leads.
    """

    def __init__(
        self, max_streams: int, quotas: Quotas, archive: Archive, forward: Forward, leading: RouterServer
    ) -> None:
        super().__init__(max_streams, quotas)
        self._archive = archive
        self._forward = forward
        self._leading = leading
        self._closing = False
        self._telling: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End every watch; streams that end from now on were not left by their clients."""
        self._closing = True
        self._archive.close()
        if self._telling:
            await asyncio.wait(self._telling, timeout=1.0)
        await self._forward.close()

    @property
    def _reads(self) -> Reads:
        return self._archive

    async def SubmitJob(self, request: pb.SubmitJobRequest, context: Context) -> pb.SubmitJobResponse:
        return cast(pb.SubmitJobResponse, await self._send("SubmitJob", request, context))

    async def CancelJob(self, request: pb.CancelJobRequest, context: Context) -> pb.CancelJobResponse:
        return cast(pb.CancelJobResponse, await self._send("CancelJob", request, context))

    async def EstimateJob(self, request: pb.EstimateJobRequest, context: Context) -> pb.EstimateJobResponse:
        return cast(pb.EstimateJobResponse, await self._send("EstimateJob", request, context))

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        return cast(pb.ListModelsResponse, await self._send("ListModels", request, context))

    async def GetFleet(self, request: pb.GetFleetRequest, context: Context) -> pb.GetFleetResponse:
        return cast(pb.GetFleetResponse, await self._send("GetFleet", request, context))

    async def AmendJob(self, request: pb.AmendJobRequest, context: Context) -> pb.AmendJobResponse:
        return cast(pb.AmendJobResponse, await self._send("AmendJob", request, context))

    async def WatchFleet(self, request: pb.WatchFleetRequest, context: Context) -> _Stream:
        with self._stream():
            try:
                async for response in self._forward.stream("WatchFleet", request, context):
                    yield response
            except Own:
                async for response in self._leading.watch_fleet(request):
                    yield response

    async def GenerateMedia(self, request: pb.GenerateMediaRequest, context: Context) -> _Stream:
        told, call = Told(), call_of(context)
        metadata = metadata_of(context, call)
        # The leader cannot tell a client that has gone from a router that has: the first router tells it.
        if not is_forwarded(context):
            context.add_done_callback(cast(Any, partial(self._left, told, call, metadata)))
        with self._stream():
            try:
                async for response in self._forward.generation(request, context, metadata, told):
                    yield response
            except Own:
                async for response in self._leading.generate(request, context):
                    if told.is_news(response):
                        yield response

    async def _send(self, method: str, request: Any, context: Context) -> Any:
        try:
            return await self._forward.unary(method, request, context)
        except Own:
            return await getattr(self._leading, method)(request, context)

    def _left(self, told: Told, call: str, metadata: Metadata, context: Context) -> None:
        """A generation's call is over. If it was not ended here, and its job is not over, its client has gone."""
        if told.job_id and not told.ended and not context.done() and not self._closing:
            telling = asyncio.get_running_loop().create_task(self._tell_left(told.job_id, call, metadata))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    async def _tell_left(self, job_id: str, call: str, metadata: Metadata) -> None:
        try:
            await self._forward.leave(job_id, call, metadata)
        except Own:
            if self._leading.desk is not None:
                self._leading.desk.attendance.leave(call, job_id)
        except TriptychError as error:
            # The leader cancels the job when nobody has come back for a while.
            log.warning("client_gone_untold", job_id=job_id, error=str(error))
