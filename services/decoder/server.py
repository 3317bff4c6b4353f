"""The decoder's gRPC face."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from grpc.aio import Server

from services.decoder.config import DecoderConfig
from services.decoder.decode_work import DecodeWork
from services.decoder.media import DEFAULT_FPS, encode_media
from services.decoder.pictures import Frames, pictures
from services.decoder.previews import Previews
from services.stage.checkpoint import Checkpoint
from services.stage.conditioning import is_for
from services.stage.failures import stage_failure
from services.stage.hosted_model import HostedModel
from services.stage.hosted_models import HostedModels
from services.stage.ref_check import check_refs
from services.stage.short_memory import run_twice
from services.stage.spec_check import check_spec
from services.stage.worker import WorkerHost
from triptych.durations import duration_of
from triptych.exchange import Bundle, Entry
from triptych.outputs import FILE
from triptych.rpc.at_work import say_at_work
from triptych.rpc.typing import Context
from triptych.v1.decoder_service_pb2 import DecodeRequest, DecodeResponse
from triptych.v1.decoder_service_pb2_grpc import DecoderServiceServicer, add_DecoderServiceServicer_to_server
from triptych.v1.job_pb2 import Conditioning, JobSpec, Output
from triptych.v1.worker_pb2 import MEDIA_KIND_VIDEO, CacheStats


class DecoderServer(DecoderServiceServicer):
    """Serves `Decode`."""

    service_name = "triptych.v1.DecoderService"

    def __init__(self, host: WorkerHost, config: DecoderConfig) -> None:
        self._host = host
        self._models = HostedModels(host)
        self._files = ThreadPoolExecutor(config.file_threads, thread_name_prefix="file")
        previews = Previews(host, self._conditioning, self._files)
        host.background.append(lambda: previews.run(self._models.each()))

    def register(self, server: Server) -> None:
        add_DecoderServiceServicer_to_server(self, server)

    def load(self, checkpoint: Checkpoint) -> None:
        self._models.load(checkpoint)

    def hand_back(self, within_s: float) -> None:
        self._host.hand_back_waiting()

    def cache_stats(self) -> CacheStats:
        return CacheStats()

    async def Decode(self, request: DecodeRequest, context: Context) -> DecodeResponse:
        with self._host.calls.admit(request.call):
            check_spec(request.spec)
            check_refs(conditioning=request.conditioning, latents=request.latents)
            model = self._models.get(request.spec.model)
            await say_at_work(context)
            try:
                return await self._decode(model, request)
            except Exception as error:
                # The job's inputs have been through its denoise.
                raise stage_failure(error, "decoding", request.spec, underway=True) from error

    async def _decode(self, model: HostedModel, request: DecodeRequest) -> DecodeResponse:
        tile_from_pixels = self._host.models[request.spec.model].tile_from_pixels
        work = DecodeWork(model, request.spec, await self._bundles(model, request), tile_from_pixels)
        rank = (request.call.rank, request.call.job_id)
        thread = self._host.thread
        # Once more where memory is short: then in tiles, whatever the size.
        tiled = replace(work, tile_from_pixels=0)
        frames, device_s = await run_twice(thread, rank, partial(work.run, thread), alone=partial(tiled.run, thread))
        response = DecodeResponse(output=await self._store(model, request, frames))
        response.device_time.CopyFrom(duration_of(device_s))
        return response

    async def _bundles(self, model: HostedModel, request: DecodeRequest) -> list[Bundle]:
        conditioning, latents = await asyncio.gather(
            self._conditioning(model, request.conditioning, request.latents.output_index),
            self._host.exchange.get(request.latents.data),
        )
        return [*conditioning, latents]

    async def _conditioning(
        self, model: HostedModel, conditioning: Iterable[Conditioning], output_index: int
    ) -> list[Bundle]:
        """What of a job's conditioning the model's decode blocks want, for one output."""
        contracts = model.checkpoint.contracts
        declared = {name for block in model.names for name in contracts[block].inputs}
        refs = [
            entry.data
            for entry in conditioning
            if is_for(entry, output_index) and entry.block in contracts and declared & contracts[entry.block].carried
        ]
        return list(await asyncio.gather(*(self._host.exchange.get(ref) for ref in refs)))

    async def _store(self, model: HostedModel, request: DecodeRequest, frames: Frames) -> Output:
        spec, index = request.spec, request.latents.output_index
        is_video = model.checkpoint.profile.media_kind == MEDIA_KIND_VIDEO
        make = partial(_file, frames, spec, is_video=is_video)
        data, media_type, (width, height) = await asyncio.get_running_loop().run_in_executor(self._files, make)
        return Output(
            index=index,
            media_type=media_type,
            width=width,
            height=height,
            frame_count=len(frames),
            seed=spec.seed + index,
            data=await self._host.exchange.put("outputs", {FILE: Entry(data)}),
        )


def _file(frames: Frames, spec: JobSpec, *, is_video: bool) -> tuple[bytes, str, tuple[int, int]]:
    """The file, its media type, and the size of its frames."""
    made = pictures(frames)
    data, media_type = encode_media(made, spec.output_format, spec.fps or DEFAULT_FPS, is_video=is_video)
    return data, media_type, made[0].size
