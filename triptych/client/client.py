"""The asyncio client of a router."""

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import grpc

from triptych.client.credentials import find_credentials, hosts_and_ports
from triptych.client.download import collect
from triptych.client.local_suite import find_router
from triptych.client.media import Media
from triptych.client.patience import Patience, Retries, interruption
from triptych.durations import duration_of
from triptych.endings import is_over, is_terminal, raise_if_failed
from triptych.errors import Reason, TriptychError, from_rpc_error
from triptych.rpc import open_channel
from triptych.rpc.responses import responses
from triptych.tls import TlsFiles
from triptych.v1 import job_pb2, router_service_pb2, router_service_pb2_grpc

if TYPE_CHECKING:
    from triptych.v1.router_service_pb2_grpc import RouterServiceAsyncStub

CALL_TIMEOUT_S = 15.0
CANCEL_TIMEOUT_S = 5.0
PAGE_SIZE = 200

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class Client:
    """A connection to a router, for one event loop: `async with Client() as client`.

    `address` is a router's `host:port`, or those of several of one suite, separated by commas: one that does not answer
    is left for the next. Without an address it takes `TRIPTYCH_ROUTER`, the suite that runs here, or 127.0.0.1:7460;
    without a token or `tls` files, what `find_credentials` finds. Entering raises `ValueError` for files that cannot be
    used. Each method raises `TriptychError` and nothing else for what goes wrong at the router or on the way there; a
    router that is briefly away is asked again within the bounds of `patience`.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        token: str | None = None,
        tls: TlsFiles | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.address = address or ""
        self._token = token
        self._tls = tls
        self._patience = patience or Patience()
        self._answered = False
        # The routers; the first is the one to ask.
        self._routers: deque[tuple[grpc.aio.Channel, RouterServiceAsyncStub]] = deque()

    async def __aenter__(self) -> Self:
        self.address = self.address or find_router()
        credentials = find_credentials(self.address, self._token, self._tls)
        for address in hosts_and_ports(self.address):
            channel = open_channel(address, credentials, through_proxy=True)
            self._routers.append((channel, router_service_pb2_grpc.RouterServiceStub(channel)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        routers = list(self._routers)
        self._routers.clear()
        await asyncio.gather(*(channel.close() for channel, _ in routers))

    async def submit(self, spec: job_pb2.JobSpec, *, request_id: str | None = None) -> job_pb2.Job:
        """Hand in a job; it is durable when this returns.

        `request_id` (1 to 64 of A-Z a-z 0-9 _ -) makes a repeated call one job, whatever became of that; without it,
        each call is a new job.
        """
        request = router_service_pb2.SubmitJobRequest(spec=spec, request_id=request_id or uuid.uuid4().hex)
        return (await self._call(lambda stub: stub.SubmitJob, request)).job

    async def watch(self, job_id: str, *, after_sequence: int = 0) -> AsyncGenerator[job_pb2.JobEvent, None]:
        """Each event of a job past `after_sequence`, once and in order, until and with the one that ends it.

        A stream that breaks is taken up again where it was.
        """
        async with contextlib.aclosing(self.follow(job_id, after_sequence=after_sequence)) as items:
            async for item in items:
                if isinstance(item, job_pb2.JobEvent):
                    yield item

    async def follow(
        self, job_id: str, *, after_sequence: int = 0
    ) -> AsyncGenerator[job_pb2.JobEvent | job_pb2.Preview, None]:
        """As `watch`, with the previews that the job's policy asks for between its events.

        A preview is seen while it is the newest; who comes late, or is slow, misses some.
        """
        retries = self._retries()
        while True:
            request = router_service_pb2.WatchJobRequest(job_id=job_id, after_sequence=after_sequence)
            try:
                async with responses(self._stub.WatchJob(request)) as events:
                    async for response in events:
                        if response.WhichOneof("item") == "preview":
                            yield response.preview
                            continue
                        event = response.event
                        if event.sequence <= after_sequence:
                            continue
                        after_sequence = event.sequence
                        self._answered = True
                        retries = self._retries()
                        yield event
                        if is_terminal(event):
                            return
                job = await self.job(job_id)
                if is_over(job) and job.last_sequence <= after_sequence:
                    return  # nothing was left to tell
                broken = TriptychError(Reason.UNREACHABLE, "The router ended the stream before the job had ended.")
            except grpc.aio.AioRpcError as failure:
                broken = interruption(failure)
            await retries.pause(broken)

    async def stream(
        self, spec: job_pb2.JobSpec, *, request_id: str | None = None
    ) -> AsyncGenerator[job_pb2.Job | job_pb2.JobEvent | job_pb2.Preview | Media, None]:
        """Submit, watch and download: the accepted job first, then its events, each output after its event.

        Between them come the previews that the spec's policy asks for. An output that is given back to make room for
        other jobs comes again once it is made again.

        Leaving early, or cancelling the task that waits here, cancels the job, also if another call has handed it in by
        the same `request_id`, which stays the cancelled job's. A client that is killed leaves the job to whoever comes
        back by that id.
        """
        job = await self._submit_or_take_back(spec, request_id)
        ended = False
        try:
            yield job
            async for item in self.follow(job.job_id):
                ended = isinstance(item, job_pb2.JobEvent) and is_terminal(item)
                yield item
                if isinstance(item, job_pb2.JobEvent) and item.WhichOneof("event") == "output":
                    try:
                        yield await self.download(job.job_id, item.output.index)
                    except TriptychError as error:
                        # Given back meanwhile to make room: another event tells of it, or that the job has ended.
                        if error.reason not in (Reason.OUTPUT_NOT_READY, Reason.OUTPUT_UNKNOWN):
                            raise
        finally:
            if not ended:
                await self._abandon(job.job_id)

    async def generate(self, spec: job_pb2.JobSpec, *, request_id: str | None = None) -> list[Media]:
        """Make pictures or videos and wait for them, in order of their index. Cancelling the task cancels the job."""
        made: dict[int, Media] = {}
        async with contextlib.aclosing(self.stream(spec, request_id=request_id)) as progress:
            async for item in progress:
                if isinstance(item, Media):
                    made[item.output.index] = item
                elif isinstance(item, job_pb2.JobEvent):
                    raise_if_failed(item)
        return [made[index] for index in sorted(made)]

    async def job(self, job_id: str) -> job_pb2.Job:
        """The job as it is now."""
        return (await self._call(lambda stub: stub.GetJob, router_service_pb2.GetJobRequest(job_id=job_id))).job

    async def jobs(self, *, states: Sequence[job_pb2.JobState.ValueType] = (), limit: int = 50) -> list[job_pb2.Job]:
        """The newest jobs, at most `limit`, of the given states or of all."""
        found: list[job_pb2.Job] = []
        page_token = ""
        while len(found) < limit:
            request = router_service_pb2.ListJobsRequest(
                page_size=min(limit - len(found), PAGE_SIZE), page_token=page_token, states=states
            )
            page = await self._call(lambda stub: stub.ListJobs, request)
            found.extend(page.jobs)
            page_token = page.next_page_token
            if not page_token:
                break
        return found[:limit]

    async def cancel(self, job_id: str) -> job_pb2.Job:
        """Stop a job for good. One that has ended stays as it is."""
        return (await self._call(lambda stub: stub.CancelJob, router_service_pb2.CancelJobRequest(job_id=job_id))).job

    async def amend(
        self,
        job_id: str,
        *,
        step_count: int | None = None,
        finish_now: bool = False,
        request_id: str | None = None,
    ) -> job_pb2.Job:
        """Change a job that was accepted: run so many steps in all, or take what it has now. One of the two.

        The job as amended; of a finished one that is to run more steps, the new job that goes on from it.
        """
        if finish_now == (step_count is not None):
            raise ValueError("amend: give either step_count or finish_now")
        amendment = job_pb2.Amendment(step_count=step_count or 0)
        if finish_now:
            amendment = job_pb2.Amendment(finish_now=job_pb2.FinishNow())
        request = router_service_pb2.AmendJobRequest(
            job_id=job_id, amendment=amendment, request_id=request_id or uuid.uuid4().hex
        )
        return (await self._call(lambda stub: stub.AmendJob, request)).job

    async def estimate(self, spec: job_pb2.JobSpec) -> router_service_pb2.EstimateJobResponse:
        """What a job would cost, and whether it would be taken now. Nothing runs."""
        return await self._call(lambda stub: stub.EstimateJob, router_service_pb2.EstimateJobRequest(spec=spec))

    async def download(self, job_id: str, output_index: int = 0) -> Media:
        """A finished output, whole in memory. An interrupted download begins again."""
        retries = self._retries()
        request = router_service_pb2.DownloadOutputRequest(job_id=job_id, output_index=output_index)
        while True:
            try:
                media = await collect(self._stub.DownloadOutput(request))
            except grpc.aio.AioRpcError as failure:
                await retries.pause(interruption(failure))
            else:
                self._answered = True
                return media

    async def models(self) -> list[router_service_pb2.Model]:
        """The catalog, and what of it is served."""
        response = await self._call(lambda stub: stub.ListModels, router_service_pb2.ListModelsRequest())
        return list(response.models)

    async def fleet(self) -> router_service_pb2.GetFleetResponse:
        """Workers and pools as the router sees them."""
        return await self._call(lambda stub: stub.GetFleet, router_service_pb2.GetFleetRequest())

    async def watch_fleet(self, interval_s: float = 1.0) -> AsyncGenerator[router_service_pb2.WatchFleetResponse, None]:
        """Snapshots of the fleet when it has changed, at most one each interval, and the scheduler's decisions.

        Never ends by itself; a stream that breaks is taken up again, and begins with a snapshot.
        """
        retries = self._retries()
        while True:
            request = router_service_pb2.WatchFleetRequest(interval=duration_of(interval_s))
            try:
                async with responses(self._stub.WatchFleet(request)) as told:
                    async for response in told:
                        self._answered = True
                        retries = self._retries()
                        yield response
                broken = TriptychError(Reason.UNREACHABLE, "The router ended the stream.")
            except grpc.aio.AioRpcError as failure:
                broken = interruption(failure)
            await retries.pause(broken)

    @property
    def _stub(self) -> "RouterServiceAsyncStub":
        if not self._routers:
            raise RuntimeError("Client is not open; use `async with Client() as client`")
        return self._routers[0][1]

    def _retries(self) -> Retries:
        """The tries of one call, at the routers in turn."""
        limit_s = self._patience.reconnect_s if self._answered else self._patience.connect_s
        return Retries(self._patience, limit_s, self._turn)

    def _turn(self) -> bool:
        """Ask the next router from now on; False if there is no other."""
        self._routers.rotate(-1)
        return len(self._routers) > 1

    async def _call(
        self,
        method: "Callable[[RouterServiceAsyncStub], grpc.aio.UnaryUnaryMultiCallable[_Request, _Response]]",
        request: _Request,
    ) -> _Response:
        retries = self._retries()
        while True:
            try:
                response = await method(self._stub)(request, timeout=CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError as failure:
                await retries.pause(from_rpc_error(failure))
            else:
                self._answered = True
                return response

    async def _submit_or_take_back(self, spec: job_pb2.JobSpec, request_id: str | None) -> job_pb2.Job:
        """Submit; if this task is cancelled meanwhile, no job stays behind that nobody knows of."""
        submission = asyncio.ensure_future(self.submit(spec, request_id=request_id))
        try:
            return await asyncio.shield(submission)
        except asyncio.CancelledError:
            with contextlib.suppress(TriptychError, TimeoutError):
                await self._abandon((await asyncio.wait_for(submission, CANCEL_TIMEOUT_S)).job_id)
            raise

    async def _abandon(self, job_id: str) -> None:
        """Cancel on the way out, even while this task is being cancelled; the caller's own error matters more."""
        with contextlib.suppress(TriptychError, TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.cancel(job_id)), CANCEL_TIMEOUT_S)
