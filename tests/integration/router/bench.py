"""What the router's tests work at: one router, some peers, and the calls that clients make."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.json_format import ParseDict
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.router.config import RouterConfig
from services.router.core.config import SchedulerConfig, default_pools
from services.router.router import Router
from tests.integration.router.peer import Peer
from tests.integration.router.peers import DecoderPeer, DenoiserPeer, EncoderPeer
from triptych.errors import Reason, TriptychError, from_rpc_error
from triptych.exchange import Exchange
from triptych.rpc import Credentials, open_channel
from triptych.rpc.channel import OPEN
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import Amendment, FinishNow, Job, JobEvent, JobSpec
from triptych.v1.router_service_pb2_grpc import RouterServiceStub
from triptych.v1.worker_pb2 import WORKER_STATE_READY

CATALOG = Path(__file__).with_name("models.toml")
WAIT_S = 10.0
# Tests hand in several jobs at once: all find room.
ROOMY = tuple(replace(pool, max_backlog_s=1e6) for pool in default_pools())
CONFIG = RouterConfig(
    listen="127.0.0.1:0",
    catalog=CATALOG,
    worker_timeout_s=1.0,
    drain_seconds=0.0,
    scheduler=SchedulerConfig(pools=ROOMY),
)


def spec(**fields: Any) -> JobSpec:
    """A small job: four steps of the embedded model, seed 7."""
    return ParseDict({"model": "shapes", "prompt": "a red circle", "step_count": 4, "seed": 7, **fields}, JobSpec())


class Bench:
    """Everything is ended with it, the latest first."""

    def __init__(self, nats_url: str, exchange: Exchange, credentials: Credentials = OPEN) -> None:
        self.exchange = exchange
        self._credentials = credentials
        self.nats_url = nats_url
        self.address = ""
        self.encoders: list[EncoderPeer] = []
        self.denoisers: list[DenoiserPeer] = []
        self.decoders: list[DecoderPeer] = []
        self._ends = AsyncExitStack()
        self._config = CONFIG
        self._router: Router | None = None
        self._running: asyncio.Task[int] | None = None
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop_router()
        await self._ends.aclose()

    @property
    def encoder(self) -> EncoderPeer:
        return self.encoders[0]

    @property
    def denoiser(self) -> DenoiserPeer:
        return self.denoisers[0]

    @property
    def decoder(self) -> DecoderPeer:
        return self.decoders[0]

    @property
    def stub(self) -> Any:
        return RouterServiceStub(self._channel)

    @property
    def peers(self) -> list[Peer]:
        return [*self.encoders, *self.denoisers, *self.decoders]

    async def start_peers(self, denoisers: int = 1, **options: Any) -> None:
        """One encoder, one decoder, some denoisers."""
        self.encoders.append(await self._ends.enter_async_context(EncoderPeer(self.exchange, "encoder-0", slots=16)))
        for index in range(denoisers):
            peer = DenoiserPeer(self.exchange, f"denoiser-{index}", **options)
            self.denoisers.append(await self._ends.enter_async_context(peer))
        self.decoders.append(await self._ends.enter_async_context(DecoderPeer(self.exchange, "decoder-0", slots=4)))

    async def add(self, peer: Peer) -> None:
        """Another worker; waits until the router has it."""
        await self._ends.enter_async_context(peer)
        lists: dict[type[Peer], list[Any]] = {
            EncoderPeer: self.encoders,
            DenoiserPeer: self.denoisers,
            DecoderPeer: self.decoders,
        }
        next(peers for kind, peers in lists.items() if isinstance(peer, kind)).append(peer)
        await self.fleet_has({peer.worker_id})

    async def start_router(self, config: RouterConfig | None = None, *, wait: bool = True) -> None:
        """Start a router, configured as the last one if nothing is said, and wait until it has all peers."""
        config = self._config = config or self._config
        config = replace(config, exchange=replace(config.exchange, url=self.nats_url))
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._router = Router(config, on_ready=listening.set_result)
        self._running = asyncio.create_task(self._router.run())
        await asyncio.wait([self._running, listening], timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        if self._running.done():
            self._running.result()
        await self.connect(listening.result())
        if wait:
            await self.fleet_has({peer.worker_id for peer in self.peers if peer.beating})

    async def connect(self, address: str) -> None:
        """Talk to the router at this address."""
        if self._channel is not None:
            await self._channel.close()
        self.address = address
        self._channel = open_channel(address, self._credentials)

    def reload_router(self) -> None:
        """As SIGHUP does."""
        assert self._router is not None
        self._router.reload()

    async def stop_router(self) -> int:
        """Close the client, then end the router; returns its exit status."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
        return await self.end_router()

    def reconfigure(self, config: RouterConfig) -> None:
        """Give the router other settings while it runs."""
        assert self._router is not None
        self._router.reconfigure(config)

    async def end_router(self) -> int:
        """End it as SIGTERM does; returns its exit status."""
        if self._router is None or self._running is None:
            return 0
        self._router.end()
        status = await asyncio.wait_for(self._running, WAIT_S)
        self._router = None
        return status

    async def fleet_has(self, worker_ids: set[str]) -> None:
        """Wait until the router has these workers, all ready."""
        async with asyncio.timeout(WAIT_S):
            while True:
                workers = (await self.fleet()).workers
                ready = {worker.worker_id for worker in workers if worker.state == WORKER_STATE_READY}
                if ready >= worker_ids:
                    return
                await asyncio.sleep(0.02)  # a pause between two calls

    async def fleet_lacks(self, worker_id: str) -> None:
        """Wait until the router has lost this worker."""
        async with asyncio.timeout(WAIT_S):
            while any(worker.worker_id == worker_id for worker in (await self.fleet()).workers):  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # a pause between two calls

    async def fleet(self) -> Any:
        """The fleet as the router has it."""
        return await self.stub.GetFleet(pb.GetFleetRequest())

    async def unready(self) -> None:
        """Wait until the router's health is NOT_SERVING."""
        stub: Any = health_pb2_grpc.HealthStub(self._channel)
        async for answer in stub.Watch(health_pb2.HealthCheckRequest(), timeout=WAIT_S):
            if answer.status == health_pb2.HealthCheckResponse.NOT_SERVING:
                return

    async def submit(self, job: JobSpec | None = None, request_id: str = "") -> Job:
        return await self._ask(self.stub.SubmitJob, pb.SubmitJobRequest(spec=job or spec(), request_id=request_id))

    async def try_submit(self, job: JobSpec, request_id: str) -> Job | None:
        """None while the store does not answer."""
        try:
            return await self.submit(job, request_id)
        except TriptychError as error:
            if error.reason is not Reason.EXCHANGE_UNAVAILABLE:
                raise
            return None

    async def cancel(self, job_id: str) -> Job:
        return await self._ask(self.stub.CancelJob, pb.CancelJobRequest(job_id=job_id))

    async def amend(self, job_id: str, step_count: int | None = None, request_id: str = "") -> Job:
        """Run so many steps in all; None: finish now."""
        amendment = Amendment(finish_now=FinishNow()) if step_count is None else Amendment(step_count=step_count)
        request = pb.AmendJobRequest(job_id=job_id, amendment=amendment, request_id=request_id)
        return await self._ask(self.stub.AmendJob, request)

    async def job(self, job_id: str) -> Job:
        return await self._ask(self.stub.GetJob, pb.GetJobRequest(job_id=job_id))

    async def watch(self, job_id: str, after_sequence: int = 0) -> AsyncIterator[JobEvent]:
        try:
            async for response in self.stub.WatchJob(
                pb.WatchJobRequest(job_id=job_id, after_sequence=after_sequence), timeout=WAIT_S * 2
            ):
                yield response.event
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None

    async def events(self, job_id: str, after_sequence: int = 0) -> list[JobEvent]:
        """All of them, to the end."""
        return [event async for event in self.watch(job_id, after_sequence)]

    async def until(self, job_id: str, kind: str) -> JobEvent:
        """The first event of a kind."""
        async for event in self.watch(job_id):
            if event.WhichOneof("event") == kind:
                return event
        raise AssertionError(f"no event {kind}")

    async def download(self, job_id: str, output_index: int = 0) -> bytes:
        data = bytearray()
        try:
            async for response in self.stub.DownloadOutput(
                pb.DownloadOutputRequest(job_id=job_id, output_index=output_index)
            ):
                assert response.WhichOneof("event") != "chunk" or response.chunk.offset == len(data)
                data += response.chunk.data
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        return bytes(data)

    async def refusal(self, job: JobSpec, request_id: str = "") -> TriptychError:
        """The error that a submit gives."""
        try:
            await self.submit(job, request_id)
        except TriptychError as error:
            return error
        raise AssertionError("it was accepted")

    async def _ask(self, method: Any, request: Any) -> Job:
        try:
            return (await method(request, timeout=WAIT_S)).job
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None


def kinds(events: Sequence[JobEvent]) -> list[str]:
    """The events' kinds, progress left out."""
    return [kind for event in events if (kind := event.WhichOneof("event") or "") != "progress"]


def check_log(events: list[JobEvent]) -> None:
    """Whole, in order, one end, and written by the routers one after the other."""
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert kinds(events).count("succeeded") == 1
    assert kinds(events)[-1] == "succeeded"
    assert kinds(events).count("output") == 1
    epochs = [event.epoch for event in events]
    assert epochs == sorted(epochs)
