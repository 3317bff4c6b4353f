"""Workers without models: real gRPC servers with real heartbeats, whose work takes no time and can be held or broken.

They put real bundles on the exchange, so that everything the router does with them is what it does with real ones.
"""

import asyncio
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from triptych.errors import Reason, TriptychError
from triptych.exchange import Entry, Exchange, TensorData
from triptych.rpc import RpcServer
from triptych.rpc.at_work import say_at_work
from triptych.rpc.typing import Context
from triptych.v1.decoder_service_pb2 import DecodeRequest, DecodeResponse
from triptych.v1.decoder_service_pb2_grpc import DecoderServiceServicer, add_DecoderServiceServicer_to_server
from triptych.v1.denoiser_service_pb2 import (
    AmendDenoiseRequest,
    AmendDenoiseResponse,
    DenoiseFinished,
    DenoiseRequest,
    DenoiseResponse,
    DenoiseStarted,
)
from triptych.v1.denoiser_service_pb2_grpc import DenoiserServiceServicer, add_DenoiserServiceServicer_to_server
from triptych.v1.encoder_service_pb2 import EncodeRequest, EncodeResponse
from triptych.v1.encoder_service_pb2_grpc import EncoderServiceServicer, add_EncoderServiceServicer_to_server
from triptych.v1.job_pb2 import (
    STAGE_DECODE,
    STAGE_DENOISE,
    STAGE_ENCODE,
    Conditioning,
    Latents,
    Output,
    Progress,
    Stage,
)
from triptych.v1.worker_pb2 import (
    MEDIA_KIND_IMAGE,
    WORKER_STATE_DRAINING,
    WORKER_STATE_READY,
    ActiveJob,
    DeclaredInput,
    ModelProfile,
    WorkerHeartbeat,
    WorkerModel,
)

BEAT_S = 0.2
WAIT_S = 10.0
PROFILE = ModelProfile(
    name="shapes",
    fingerprint="f" * 32,
    media_kind=MEDIA_KIND_IMAGE,
    vae_scale_factor=8,
    patch_size=1,
    vae_temporal_factor=1,
    inputs=[
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


class Gate:
    """Lets work pass one place, all of it or so many times, and tells when something has come there."""

    def __init__(self) -> None:
        self._left = math.inf
        self._arrivals = 0
        self._changed = asyncio.Condition()

    def close(self) -> None:
        """Hold what comes from now on."""
        self._left = 0

    async def open(self, times: float = math.inf) -> None:
        """Let work pass so many times."""
        async with self._changed:
            self._left = times
            self._changed.notify_all()

    async def pass_through(self) -> None:
        async with self._changed:
            self._arrivals += 1
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._left > 0)
            self._left -= 1

    async def reached(self, times: int = 1) -> None:
        """Wait until work has come here so many times in all."""
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(lambda: self._arrivals >= times)


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
            models=[WorkerModel(profile=self.profile, resident=True)],
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


class EncoderPeer(Peer, EncoderServiceServicer):
    """Conditioning is the prompt's own bytes, `padding` more of them; prompts seen before are "cached"."""

    stage = STAGE_ENCODE
    service = "EncoderService"
    padding = 0
    seen: set[str]

    def register(self, server: Any) -> None:
        self.seen = set()
        add_EncoderServiceServicer_to_server(self, server)

    async def Encode(self, request: EncodeRequest, context: Context) -> EncodeResponse:
        self._take(request)
        await say_at_work(context)
        try:
            await self.gate.pass_through()
        except asyncio.CancelledError:
            self._cancelled[request.call.job_id].set()
            raise
        prompt = request.spec.prompt
        made = prompt.encode() + bytes(self.padding)
        data = await self._exchange.put("conditioning", {"prompt_embeds": Entry(_tensor(made))})
        cached, _ = prompt in self.seen, self.seen.add(prompt)
        return EncodeResponse(
            conditioning=[Conditioning(block="text_encoder", data=data, key="0" * 64)],
            cached=cached,
            device_time=self.device_time(),
        )


class DenoiserPeer(Peer, DenoiserServiceServicer):
    """Every step passes the gate; latents are the seed's bytes. A refined job runs the steps past those it has."""

    stage = STAGE_DENOISE
    service = "DenoiserService"
    amendments: list[AmendDenoiseRequest]
    _counts: dict[str, int]
    _asked_back: defaultdict[tuple[str, int], asyncio.Event]

    def register(self, server: Any) -> None:
        self.amendments, self._counts = [], {}
        self._asked_back = defaultdict(asyncio.Event)
        add_DenoiserServiceServicer_to_server(self, server)

    async def Denoise(self, request: DenoiseRequest, context: Context) -> AsyncIterator[DenoiseResponse]:
        self._take(request)
        for conditioning in request.conditioning:
            if not await self._exchange.exists(conditioning.data):
                raise TriptychError(Reason.CONDITIONING_GONE, "the conditioning is gone")
        yield DenoiseResponse(started=DenoiseStarted())
        try:
            async for response in self._steps(request):
                yield response
        except (asyncio.CancelledError, GeneratorExit):
            self._cancelled[request.call.job_id].set()
            raise
        yield DenoiseResponse(finished=DenoiseFinished(device_time=self.device_time()))

    async def AmendDenoise(self, request: AmendDenoiseRequest, context: Context) -> AmendDenoiseResponse:
        self.amendments.append(request)
        job_id = request.call.job_id
        if job_id not in self._counts:
            raise TriptychError(Reason.JOB_UNKNOWN, "it does not run here")
        if request.hand_back:
            self._asked_back[job_id, request.call.attempt].set()
        if request.amendment.HasField("finish_now"):
            self._counts[job_id] = self.steps[job_id] + 1
        elif request.HasField("amendment"):
            self._counts[job_id] = request.amendment.step_count
        return AmendDenoiseResponse(step_count=self._counts[job_id])

    async def asked_back(self, job_id: str, attempt: int = 1) -> None:
        """Wait until it was asked to hand the job back: it does so at its next step."""
        await asyncio.wait_for(self._asked_back[job_id, attempt].wait(), WAIT_S)

    async def _steps(self, request: DenoiseRequest) -> AsyncIterator[DenoiseResponse]:
        spec, counts, job_id = request.spec, self._counts, request.call.job_id
        counts[job_id] = spec.step_count
        for index in range(spec.output_count):
            if index in request.finished_outputs:
                continue
            step = request.refined_step_count
            while step < counts[job_id]:
                await self.gate.pass_through()
                if self._asked_back[job_id, request.call.attempt].is_set():
                    raise TriptychError(Reason.DRAINING, "handed back")
                step += 1
                self.steps[job_id] += 1
                fraction = (index * counts[job_id] + step) / (spec.output_count * counts[job_id])
                yield DenoiseResponse(
                    progress=Progress(
                        stage=STAGE_DENOISE,
                        output_index=index,
                        step=step,
                        step_count=counts[job_id],
                        fraction=min(1.0, fraction),
                    )
                )
            seed = (spec.seed + index).to_bytes(8, "little")
            data = await self._exchange.put("latents", {"latents": Entry(_tensor(seed))})
            yield DenoiseResponse(latents=Latents(output_index=index, data=data))


class DecoderPeer(Peer, DecoderServiceServicer):
    """The file is "output of" and the seed; `file_bytes` makes it longer."""

    stage = STAGE_DECODE
    service = "DecoderService"
    file_bytes = 0

    def register(self, server: Any) -> None:
        add_DecoderServiceServicer_to_server(self, server)

    async def Decode(self, request: DecodeRequest, context: Context) -> DecodeResponse:
        self._take(request)
        await say_at_work(context)
        try:
            await self.gate.pass_through()
        except asyncio.CancelledError:
            self._cancelled[request.call.job_id].set()
            raise
        for conditioning in request.conditioning:
            if not await self._exchange.exists(conditioning.data):
                raise TriptychError(Reason.CONDITIONING_GONE, "the conditioning is gone")
        if not await self._exchange.exists(request.latents.data):
            raise TriptychError(Reason.LATENTS_GONE, "the latents are gone")
        bundle = await self._exchange.get(request.latents.data)
        tensor = bundle["latents"].value
        assert isinstance(tensor, TensorData)
        seed = int.from_bytes(bytes(tensor.data), "little")
        file = f"output of {seed}".encode().ljust(self.file_bytes, b".")
        data = await self._exchange.put("outputs", {"file": Entry(file)})
        output = Output(
            index=request.latents.output_index,
            media_type="image/png",
            width=request.spec.width,
            height=request.spec.height,
            frame_count=1,
            seed=seed,
            data=data,
        )
        return DecodeResponse(output=output, device_time=self.device_time())


def _tensor(data: bytes) -> TensorData:
    return TensorData("uint8", (len(data),), data)
