"""An encoder, a denoiser and a decoder without models.

They put real bundles on the exchange, so that everything the router does with them is what it does with real ones.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

from tests.integration.router.gate import WAIT_S
from tests.integration.router.peer import Peer
from triptych.errors import Reason, TriptychError
from triptych.exchange import Entry, TensorData
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
from triptych.v1.encoder_service_pb2 import CountTokensRequest, CountTokensResponse, EncodeRequest, EncodeResponse
from triptych.v1.encoder_service_pb2_grpc import EncoderServiceServicer, add_EncoderServiceServicer_to_server
from triptych.v1.job_pb2 import (
    STAGE_DECODE,
    STAGE_DENOISE,
    STAGE_ENCODE,
    Conditioning,
    JobSpec,
    Latents,
    Output,
    Progress,
    TextReading,
)


class EncoderPeer(Peer, EncoderServiceServicer):
    """Conditioning is the prompt's own bytes, `padding` more of them; prompts seen before are "cached".

    A word is a token, and there are two tokenizers: one takes eight, the other sixteen.
    """

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
            conditioning=[Conditioning(block="text_encoder", data=data, key="0" * 64, texts=_read(request.spec))],
            cached=cached,
            device_time=self.device_time(),
        )

    async def CountTokens(self, request: CountTokensRequest, context: Context) -> CountTokensResponse:
        assert not request.spec.attachments
        await self.gate.pass_through()
        return CountTokensResponse(texts=_read(request.spec))


def _read(spec: JobSpec) -> list[TextReading]:
    return [
        TextReading(field=field, tokenizer=name, token_count=len(text.split()), token_limit=limit)
        for field, text in (("prompt", spec.prompt), ("negative_prompt", spec.negative_prompt))
        for name, limit in (("tokenizer", 8), ("tokenizer_2", 16))
    ]


class DenoiserPeer(Peer, DenoiserServiceServicer):
    """Every step passes the gate. Latents are the seed's bytes; `latents_bytes` makes them longer.

    A refined job runs the steps past those it has.
    """

    stage = STAGE_DENOISE
    service = "DenoiserService"
    latents_bytes = 8
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
            seed = (spec.seed + index).to_bytes(self.latents_bytes, "little")
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
