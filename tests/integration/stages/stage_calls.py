"""Calls to the three stages in order, as the router makes them."""

import itertools
from contextlib import AsyncExitStack
from typing import Any, Self, TypeAlias

import grpc

from triptych.exchange import Exchange, TensorData
from triptych.rpc import open_channel
from triptych.v1.decoder_service_pb2 import DecodeRequest, DecodeResponse
from triptych.v1.decoder_service_pb2_grpc import DecoderServiceStub
from triptych.v1.denoiser_service_pb2 import DenoiseRequest, DenoiseResponse
from triptych.v1.denoiser_service_pb2_grpc import DenoiserServiceStub
from triptych.v1.encoder_service_pb2 import EncodeRequest, EncodeResponse, StageCall
from triptych.v1.encoder_service_pb2_grpc import EncoderServiceStub
from triptych.v1.job_pb2 import MEDIA_FORMAT_PNG, JobSpec, Latents

DenoiseCall: TypeAlias = "grpc.aio.UnaryStreamCall[DenoiseRequest, DenoiseResponse]"


def job(model: str, **fields: Any) -> JobSpec:
    """A complete spec: 64 × 64 pixels, three steps, seed 7, reproducible, PNG."""
    stock = {
        "prompt": "a red circle",
        "seed": 7,
        "step_count": 3,
        "guidance": 3.0,
        "width": 64,
        "height": 64,
        "output_count": 1,
        "fps": 8.0,
        "reproducible": True,
        "output_format": MEDIA_FORMAT_PNG,
    }
    return JobSpec(model=model, **{**stock, **fields})


class StageCalls:
    """Opens channels to one worker of each stage, for as long as the block lasts."""

    def __init__(self, addresses: dict[str, str], exchange: Exchange, epoch: int) -> None:
        self._addresses = addresses
        self._exchange = exchange
        self.epoch = epoch
        self._open = AsyncExitStack()
        self._job_ids = (f"job-{index}" for index in itertools.count(1))

    async def __aenter__(self) -> Self:
        channels = {
            stage: await self._open.enter_async_context(open_channel(address))
            for stage, address in self._addresses.items()
        }
        self.encoder = EncoderServiceStub(channels["encoder"])
        self.denoiser = DenoiserServiceStub(channels["denoiser"])
        self.decoder = DecoderServiceStub(channels["decoder"])
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._open.aclose()

    def call(self, rank: float = 1.0, epoch: int | None = None) -> StageCall:
        return StageCall(job_id=next(self._job_ids), attempt=1, epoch=epoch or self.epoch, rank=rank)

    async def encode(self, spec: JobSpec, rank: float = 1.0) -> EncodeResponse:
        response: EncodeResponse = await self.encoder.Encode(EncodeRequest(call=self.call(rank), spec=spec))
        return response

    def denoise(self, spec: JobSpec, encoded: EncodeResponse, rank: float = 1.0) -> DenoiseCall:
        request = DenoiseRequest(call=self.call(rank), spec=spec, conditioning=encoded.conditioning)
        call: DenoiseCall = self.denoiser.Denoise(request)
        return call

    async def decode(self, spec: JobSpec, encoded: EncodeResponse, latents: Latents) -> DecodeResponse:
        response: DecodeResponse = await self.decoder.Decode(
            DecodeRequest(call=self.call(), spec=spec, latents=latents, conditioning=encoded.conditioning)
        )
        return response

    async def files(self, spec: JobSpec) -> list[bytes]:
        """Every output's file, through all three stages."""
        encoded = await self.encode(spec)
        latents = [event.latents async for event in self.denoise(spec, encoded) if event.HasField("latents")]
        decoded = [
            await self.decode(spec, encoded, each) for each in sorted(latents, key=lambda each: each.output_index)
        ]
        return [await self.file(response) for response in decoded]

    async def file(self, response: DecodeResponse) -> bytes:
        value = (await self._exchange.get(response.output.data))["file"].value
        assert isinstance(value, bytes)
        return value


async def bits(exchange: Exchange, latents: Latents) -> bytes:
    """The latents themselves."""
    value = (await exchange.get(latents.data))["latents"].value
    assert isinstance(value, TensorData)
    return bytes(value.data)
