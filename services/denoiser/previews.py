"""A job's previews on their way to a decoder: one at a time, beside its work, dropped when late."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import nats.errors
import structlog
import torch
from google.protobuf.message import DecodeError
from torch.nn.functional import avg_pool2d, avg_pool3d

from services.denoiser.preview_seam import Finish
from services.stage.hosted_model import HostedModel
from services.stage.tensors import to_bundle
from triptych.exchange import Exchange, pack
from triptych.previews import interval_s, latents_subject
from triptych.v1.denoiser_service_pb2 import DenoiseRequest
from triptych.v1.job_pb2 import JobSpec
from triptych.v1.preview_pb2 import PreviewAnswer, PreviewLatents

log = structlog.get_logger()
# A message of NATS holds 8 MB.
MAX_LATENT_BYTES = 4 * 1024 * 1024


class Previews:
    """Of one call. At most one is on its way; another that is due meanwhile is dropped, and counted.

    The device thread copies the latents to the host, in half precision; everything else happens beside it.
    """

    def __init__(self, exchange: Exchange, model: HostedModel, request: DenoiseRequest, time_limit_s: float) -> None:
        self._exchange = exchange
        self._subject = latents_subject(model.checkpoint.fingerprint)
        self._request = request
        self._spec = _slim(request.spec)
        self._policy = request.spec.preview
        self._time_limit_s = time_limit_s
        self._loop = asyncio.get_running_loop()
        self._last_s = time.monotonic()
        self.sending: asyncio.Task[None] | None = None
        self._in_flight = False
        self.made_count = 0
        self.dropped_count = 0
        # Of the last that was dropped.
        self._why = ""

    def of(self, output_index: int) -> "OutputPreviews":
        """Those of one output."""
        return OutputPreviews(self, output_index)

    def close(self) -> None:
        """The job is over: what is on its way is of no use any more."""
        if self.sending is not None:
            self.sending.cancel()
        job_id = self._request.call.job_id
        log.info("previews_ended", job_id=job_id, made=self.made_count, dropped=self.dropped_count, why=self._why)

    def due(self, step: int) -> bool:
        """Whether to send one now, after so many steps. On the device thread."""
        if not self._is_time(step):
            return False
        if self._in_flight:
            self._count_dropped("the one before was on its way still")
            return False
        self._in_flight = True
        return True

    def send(self, output_index: int, step: int, step_count: int, clean: torch.Tensor, finish: Finish) -> None:
        """On the device thread: begin the copy and hand over."""
        due = Due(output_index, step, step_count, copy_to_host(clean), finish)
        self._loop.call_soon_threadsafe(self._start, due)

    def drop(self, why: str) -> None:
        """On the device thread: there is nothing to send."""
        self._in_flight = False
        self._count_dropped(why)

    def _count_dropped(self, why: str) -> None:
        self.dropped_count += 1
        self._why = why

    def _is_time(self, step: int) -> bool:
        if self._policy.WhichOneof("interval") == "every_steps":
            return step % self._policy.every_steps == 0
        now_s = time.monotonic()
        if now_s - self._last_s < interval_s(self._policy):
            return False
        self._last_s = now_s
        return True

    def _start(self, due: "Due") -> None:
        self.sending = self._loop.create_task(self._send(due))

    async def _send(self, due: "Due") -> None:
        why = ""
        try:
            async with asyncio.timeout(self._time_limit_s):
                data = await asyncio.to_thread(self._message, due)
                answer = await self._exchange.bulk.request(self._subject, data, timeout=self._time_limit_s)
            why = PreviewAnswer.FromString(answer.data).refusal
        except nats.errors.NoRespondersError:
            why = "no decoder of this model makes previews"
        except (TimeoutError, nats.errors.Error, DecodeError, ValueError) as error:
            why = str(error) or "no decoder made it in time"
        except Exception as error:
            log.exception("preview_failed", job_id=self._request.call.job_id)
            why = str(error)
        finally:
            self._in_flight = False
        if why:
            self._count_dropped(why)
        else:
            self.made_count += 1

    def _message(self, due: "Due") -> bytes:
        latents = shrunk(due.finish(due.copied()))
        message = PreviewLatents(
            call=self._request.call,
            spec=self._spec,
            conditioning=self._request.conditioning,
            output_index=due.output_index,
            step=due.step,
            step_count=due.step_count,
            bundle=pack(to_bundle({"latents": (latents, "")})),
        )
        message.time_limit.FromNanoseconds(round(self._time_limit_s * 1e9))
        return message.SerializeToString()


@dataclass(frozen=True, slots=True)
class Due:
    """A preview to be sent: `copied` waits for the latents to be on the host, `finish` makes them a decoder's input."""

    output_index: int
    step: int
    step_count: int
    copied: Callable[[], torch.Tensor]
    finish: Finish


class OutputPreviews:
    """The `PreviewTaker` of one output of one job."""

    def __init__(self, previews: Previews, output_index: int) -> None:
        self._previews = previews
        self._output_index = output_index

    def due(self, step: int, step_count: int) -> bool:
        return self._previews.due(step)

    def take(self, step: int, step_count: int, clean: torch.Tensor | None, finish: Finish) -> None:
        if clean is None:
            self._previews.drop("its sampler does not tell what it takes for the clean latents")
        else:
            self._previews.send(self._output_index, step, step_count, clean, finish)


def copy_to_host(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Begin to copy a tensor to the host, as float16; the function that is returned waits for it, in any thread.

    A device is not waited for here: it may have work queued that has not run yet.
    """
    half = tensor.detach().to(torch.float16)
    if half.device.type != "cuda":
        copy = half.clone() if half.dtype == tensor.dtype else half.cpu()
        return lambda: copy
    pinned = torch.empty(half.shape, dtype=half.dtype, pin_memory=True)
    pinned.copy_(half, non_blocking=True)
    copied: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()

    def wait() -> torch.Tensor:
        copied.synchronize()
        return pinned

    return wait


def shrunk(latents: torch.Tensor) -> torch.Tensor:
    """Averaged over squares of cells until they fit into a message. Raises `ValueError` if they cannot be made to fit.

    Latents are (b, channels, [frames,] h, w), or of a layout that only the decode blocks know, which stays as it is.
    """
    while latents.nbytes > MAX_LATENT_BYTES:
        if latents.ndim not in (4, 5) or min(latents.shape[-2:]) < 2:
            raise ValueError(f"latents of {latents.nbytes} bytes; at most {MAX_LATENT_BYTES} can be sent")
        pooled = avg_pool3d(latents.float(), (1, 2, 2)) if latents.ndim == 5 else avg_pool2d(latents.float(), 2)
        latents = pooled.to(torch.float16)
    return latents


def _slim(spec: JobSpec) -> JobSpec:
    """What a decoder needs to know of a job: not what it was made of."""
    slim = JobSpec()
    slim.CopyFrom(spec)
    for name in ("prompt", "negative_prompt", "attachments"):
        slim.ClearField(name)
    return slim
