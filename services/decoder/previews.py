"""Makes previews of what denoisers send: behind every real decode, and never many at once."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from typing import Any

import nats.errors
import structlog
from google.protobuf.message import DecodeError

from services.decoder.decode_work import DecodeWork
from services.decoder.media import DEFAULT_FPS
from services.decoder.pictures import Frames
from services.decoder.preview_decoder import PreviewDecoder
from services.decoder.preview_decoders import PreviewDecoders
from services.decoder.preview_file import MEDIA_TYPE, preview_file
from services.stage.hosted_model import HostedModel
from services.stage.spec_check import check_spec
from services.stage.worker import WorkerHost
from triptych.durations import seconds_of
from triptych.errors import TriptychError
from triptych.exchange import Bundle, ExchangeError, unpack
from triptych.previews import DEFAULT_SIDE, QUEUE_GROUP, latents_subject, made_subject
from triptych.v1.job_pb2 import Conditioning, Preview
from triptych.v1.preview_pb2 import PreviewAnswer, PreviewLatents
from triptych.v1.worker_pb2 import MEDIA_KIND_VIDEO

log = structlog.get_logger()
# Requests of different jobs; another is refused at once.
MAX_WAITING = 8
MAX_LIMIT_S = 60.0
Fetch = Callable[[HostedModel, Iterable[Conditioning], int], Awaitable[list[Bundle]]]


class Previews:
    """Serves the previews of one decoder. A preview ranks behind all decodes, so these wait for at most one.

    `fetch` gets what of a job's conditioning the model's decode blocks want; files are written on `files`.
    """

    def __init__(self, host: WorkerHost, fetch: Fetch, files: Executor) -> None:
        self._host = host
        self._fetch = fetch
        self._files = files
        self._decoders = PreviewDecoders(host)
        self._waiting: set[asyncio.Task[None]] = set()

    async def run(self, models: AsyncIterator[HostedModel]) -> None:
        """Serve each model as soon as its preview decoder is there, until cancelled."""
        subscriptions = []
        try:
            async for model in models:
                try:
                    decoder = await self._decoders.make(model)
                except Exception:
                    log.exception("no_previews", model=model.checkpoint.name)
                    continue
                subject = latents_subject(model.checkpoint.fingerprint)
                hear = partial(self._hear, model, decoder)
                subscriptions.append(await self._host.exchange.bulk.subscribe(subject, QUEUE_GROUP, cb=hear))
        finally:
            for subscription in subscriptions:
                await subscription.unsubscribe()
            for task in self._waiting:
                task.cancel()

    async def _hear(self, model: HostedModel, decoder: PreviewDecoder, message: Any) -> None:
        if len(self._waiting) >= MAX_WAITING:
            await self._answer(message, "too many previews wait")
            return
        task = asyncio.create_task(self._serve(model, decoder, message))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _serve(self, model: HostedModel, decoder: PreviewDecoder, message: Any) -> None:
        refusal = ""
        try:
            request = PreviewLatents.FromString(message.data)
            check_spec(request.spec)
            async with asyncio.timeout(min(seconds_of(request.time_limit), MAX_LIMIT_S)):
                preview = await self._preview(model, decoder, request)
            await self._host.exchange.control.publish(made_subject(preview.job_id), preview.SerializeToString())
        except TimeoutError:
            refusal = "real work came first"
        except (DecodeError, ExchangeError, TriptychError, ValueError) as error:
            refusal = str(error)
            log.warning("preview_refused", model=model.checkpoint.name, why=refusal)
        except Exception as error:
            refusal = f"{type(error).__name__}: {error}"
            log.exception("preview_failed", model=model.checkpoint.name)
        await self._answer(message, refusal)

    async def _answer(self, message: Any, refusal: str) -> None:
        try:
            await message.respond(PreviewAnswer(refusal=refusal[:200]).SerializeToString())
        except nats.errors.Error as error:
            log.info("preview_unanswered", error=repr(error))

    async def _preview(self, model: HostedModel, decoder: PreviewDecoder, request: PreviewLatents) -> Preview:
        spec = request.spec
        max_side = spec.preview.max_side or DEFAULT_SIDE
        fetched = await self._fetch(model, request.conditioning, request.output_index)
        bundles: list[Bundle] = [*fetched, unpack(request.bundle)]
        work = DecodeWork(model, spec, bundles, preview_vae=decoder.stand_in(max_side))
        rank = (math.inf, request.call.job_id)
        frames, _ = await self._host.thread.run(rank, partial(work.run, self._host.thread))
        data, (width, height) = await self._write(model, request, frames, max_side)
        return Preview(
            job_id=request.call.job_id,
            attempt=request.call.attempt,
            output_index=request.output_index,
            step=request.step,
            step_count=request.step_count,
            media_type=MEDIA_TYPE,
            width=width,
            height=height,
            frame_count=len(frames),
            data=data,
        )

    async def _write(
        self, model: HostedModel, request: PreviewLatents, frames: Frames, max_side: int
    ) -> tuple[bytes, tuple[int, int]]:
        spec = request.spec
        is_video = model.checkpoint.profile.media_kind == MEDIA_KIND_VIDEO
        seconds = spec.frame_count / (spec.fps or DEFAULT_FPS) if is_video else 0.0
        write = partial(preview_file, frames, (spec.width, spec.height), max_side, seconds)
        return await asyncio.get_running_loop().run_in_executor(self._files, write)
