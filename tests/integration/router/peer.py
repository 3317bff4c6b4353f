"""A worker without a model: real gRPC, real heartbeats, and work that takes no time and can be held or broken."""

import asyncio
import itertools
from collections import Counter, defaultdict
from types import TracebackType
from typing import Any, Self

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tests.integration.router.gate import WAIT_S, Gate
from triptych.errors import TriptychError
from triptych.exchange import Exchange
from triptych.rpc import RpcServer
from triptych.v1.job_pb2 import Stage
from triptych.v1.worker_pb2 import (
    MEDIA_KIND_IMAGE,
    WORKER_STATE_DRAINING,
    WORKER_STATE_READY,
    ActiveJob,
    DeclaredInput,
    ModelProfile,
    RefusedModel,
    WorkerHeartbeat,
    WorkerModel,
)

BEAT_S = 0.2
PROFILE = ModelProfile(
    name="shapes",
    fingerprint="f" * 32,
    media_kind=MEDIA_KIND_IMAGE,
    vae_scale_factor=8,
    patch_size=1,
    vae_temporal_factor=1,
    inputs=[
        DeclaredInput(name="prompt", type_hint="str"),
        DeclaredInput(name="negative_prompt", type_hint="str | None"),
        DeclaredInput(name="image", type_hint="PIL.Image.Image"),
        DeclaredInput(name="mask_image", type_hint="PIL.Image.Image"),
        DeclaredInput(name="strength", type_hint="<class 'float'>"),
        DeclaredInput(name="eta", type_hint="float"),
        DeclaredInput(name="clip_skip", type_hint="int | None"),
        DeclaredInput(name="windows", type_hint="list"),
    ],
)
_PROCESS = itertools.count()


class Peer:
    """One worker. `gate` is passed before each step, or before the encode or decode; `steps` counts steps a job.

    `errors` are raised by the next calls, one each.
    """

    stage: Stage.ValueType
    service: str

    def __init__(
        self, exchange: Exchange, worker_id: str, *, listen: str = "127.0.0.1:0", slots: int = 4, device_s: float = 0.0
    ) -> None:
        self.worker_id = worker_id
        self.gate = Gate()
        self.calls: list[Any] = []
        self._cancelled: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.steps: Counter[str] = Counter()
        self.errors: list[TriptychError] = []
        self.profile = PROFILE
        # Why it cannot serve the model; "": it serves it.
        self.refusal = ""
        self.beating = True
        # What its heartbeats say that it works at.
        self.active: list[ActiveJob] = []
        self._exchange = exchange
        self._slots = slots
        self.device_s = device_s
        self._sequence = 0
        self._state = WORKER_STATE_READY
        self._start_time = Timestamp(seconds=1_700_000_000 + next(_PROCESS))
        self._server = RpcServer(listen, [f"triptych.v1.{self.service}"])
        self._heart: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        return self._server.address

    async def __aenter__(self) -> Self:
        await self._server.start(self.register)
        await self._server.set_serving(True)
        self._heart = asyncio.create_task(self._beat_on())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.die()

    async def die(self) -> None:
        """End at once, without a word."""
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.wait([self._heart])
        await self._server.stop(0)

    async def hang_up(self) -> None:
        """Break every connection, and listen on: the network did it."""
        address = self.address
        await self._server.stop(0)
        self._server = RpcServer(address, [f"triptych.v1.{self.service}"])
        await self._server.start(self.register)
        await self._server.set_serving(True)

    async def drain(self) -> None:
        """Say that no new work is taken."""
        self._state = WORKER_STATE_DRAINING
        await self.beat()

    async def cancelled(self, job_id: str) -> None:
        """Wait until a call of this job was cancelled here."""
        await asyncio.wait_for(self._cancelled[job_id].wait(), WAIT_S)

    def calls_of(self, job_id: str) -> list[Any]:
        """The requests that came for a job."""
        return [request for request in self.calls if request.call.job_id == job_id]

    def register(self, server: Any) -> None:
        raise NotImplementedError

    async def beat(self) -> None:
        """Announce this worker once."""
        self._sequence += 1
        beat = WorkerHeartbeat(
            worker_id=self.worker_id,
            stage=self.stage,
            address=self.address,
            version="peer",
            sequence=self._sequence,
            start_time=self._start_time,
            state=self._state,
            device="none",
            models=[] if self.refusal else [WorkerModel(profile=self.profile, resident=True)],
            refused_models=[RefusedModel(name=self.profile.name, reason=self.refusal)] if self.refusal else [],
            max_active_jobs=self._slots,
            active_jobs=self.active,
        )
        name = Stage.Name(self.stage).removeprefix("STAGE_").lower()
        subject = f"triptych.v1.heartbeat.{name}.{self.worker_id}"
        await self._exchange.control.publish(subject, beat.SerializeToString())

    def device_time(self) -> Duration:
        spent = Duration()
        spent.FromNanoseconds(int(self.device_s * 1e9))
        return spent

    async def _beat_on(self) -> None:
        while True:
            if self.beating:
                await self.beat()
            await asyncio.sleep(BEAT_S)

    def _take(self, request: Any) -> None:
        self.calls.append(request)
        if self.errors:
            raise self.errors.pop(0)
