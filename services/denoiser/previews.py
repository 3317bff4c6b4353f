"""A job's previews on their way to a decoder: one of an output at a time, beside its work, dropped when late."""

import asyncio
import time
from dataclasses import dataclass

import nats.errors
import structlog
import torch
from google.protobuf.message import DecodeError

from services.denoiser.preview_copy import HostCopy, shrunk
from services.denoiser.preview_pace import PreviewPace
from services.denoiser.preview_seam import Finish
from services.stage.hosted_model import HostedModel
from services.stage.tensors import to_bundle
from triptych.durations import duration_of
from triptych.exchange import Exchange, pack
from triptych.previews import latents_subject
from triptych.v1.denoiser_service_pb2 import DenoiseRequest
from triptych.v1.job_pb2 import JobSpec
from triptych.v1.preview_pb2 import PreviewAnswer, PreviewLatents

log = structlog.get_logger()
# Kinds of `extra` values that cannot be a second prompt.
_NO_TEXT = ("number_value", "bool_value")


class Previews:
    """Of one call. `time_limit_s`: one that no decoder has made by then is given up.

    Of one output at most one is on its way, and two begin `spacing_s` apart; others that are due are dropped, and
    counted. Outputs may be made together, so each has a pace of its own: else the first would take every turn.
    """

    def __init__(
        self, exchange: Exchange, model: HostedModel, request: DenoiseRequest, time_limit_s: float, spacing_s: float
    ) -> None:
        self.exchange = exchange
        self.subject = latents_subject(model.checkpoint.fingerprint)
        self.time_limit_s = time_limit_s
        self.spacing_s = spacing_s
        self.policy = request.spec.preview
        self.loop = asyncio.get_running_loop()
        # What every message says.
        self.frame = PreviewLatents(call=request.call, spec=_slim(request.spec), conditioning=request.conditioning)
        self.frame.time_limit.CopyFrom(duration_of(time_limit_s))
        self._outputs: list[OutputPreviews] = []

    def of(self, output_index: int) -> "OutputPreviews":
        """Those of one output."""
        output = OutputPreviews(self, output_index)
        self._outputs.append(output)
        return output

    @property
    def made_count(self) -> int:
        """How many a decoder has made."""
        return sum(output.made_count for output in self._outputs)

    @property
    def dropped_count(self) -> int:
        """How many were due and were not made."""
        return sum(output.passed_count + output.failed_count for output in self._outputs)

    def close(self) -> None:
        """The job is over: what is on its way is of no use any more."""
        for output in self._outputs:
            output.close()
        why = next((output.why for output in self._outputs if output.why), "")
        job_id = self.frame.call.job_id
        log.info("previews_ended", job_id=job_id, made=self.made_count, dropped=self.dropped_count, why=why)


@dataclass(frozen=True, slots=True)
class Due:
    """A preview to be sent: `finish` makes the copied latents a decoder's input."""

    step: int
    step_count: int
    copy: HostCopy
    finish: Finish


class OutputPreviews:
    """The `PreviewTaker` of one output of one job.

    The device thread begins to copy the latents to the host, in half precision; everything else happens beside it. What
    is dropped costs it a look at the clock: the event loop is woken only for what is sent.
    """

    def __init__(self, job: Previews, output_index: int) -> None:
        self._job = job
        self._output_index = output_index
        self._pace = PreviewPace(job.policy, job.spacing_s, time.monotonic())
        self._in_flight = False
        self.sending: asyncio.Task[None] | None = None
        self.made_count = 0
        # Counted by the device thread, and by the event loop.
        self.passed_count = 0
        self.failed_count = 0
        # Of the last that was dropped.
        self.why = ""

    def due(self, step: int, step_count: int) -> bool:
        now_s = time.monotonic()
        if not self._pace.due(step, now_s):
            return False
        if self._in_flight:
            return self._pass("the one before was on its way still")
        if self._pace.too_soon(now_s):
            return self._pass("the one before was begun just now")
        self._pace.begin(now_s)
        return True

    def take(self, step: int, step_count: int, clean: torch.Tensor | None, finish: Finish) -> None:
        if clean is None:
            self._pass("its sampler does not tell what it takes for the clean latents")
            return
        self._in_flight = True
        self._job.loop.call_soon_threadsafe(self._start, Due(step, step_count, HostCopy(clean), finish))

    def close(self) -> None:
        """Nobody wants them any more."""
        if self.sending is not None:
            self.sending.cancel()

    def _pass(self, why: str) -> bool:
        self.passed_count += 1
        self.why = why
        return False

    def _start(self, due: Due) -> None:
        self.sending = self._job.loop.create_task(self._send(due))

    async def _send(self, due: Due) -> None:
        try:
            why = await self._ask(due)
        except nats.errors.NoRespondersError:
            why = "no decoder of this model makes previews"
        except (TimeoutError, nats.errors.Error, DecodeError, ValueError) as error:
            why = str(error) or "no decoder made it in time"
        except Exception as error:
            log.exception("preview_failed", job_id=self._job.frame.call.job_id)
            why = str(error) or type(error).__name__
        finally:
            self._in_flight = False
        if why:
            self.failed_count += 1
            self.why = why
        else:
            self.made_count += 1

    async def _ask(self, due: Due) -> str:
        """Have a decoder make it; why it did not, if so."""
        job = self._job
        async with asyncio.timeout(job.time_limit_s):
            # Each change of threads takes the interpreter from the device thread once more.
            data = self._message(due) if due.copy.is_quick else await asyncio.to_thread(self._message, due)
            answer = await job.exchange.bulk.request(job.subject, data, timeout=job.time_limit_s)
        return PreviewAnswer.FromString(answer.data).refusal

    def _message(self, due: Due) -> bytes:
        latents = shrunk(due.finish(due.copy.wait()))
        message = PreviewLatents(
            output_index=self._output_index,
            step=due.step,
            step_count=due.step_count,
            bundle=pack(to_bundle({"latents": (latents, "")})),
        )
        message.MergeFrom(self._job.frame)
        return message.SerializeToString()


def _slim(spec: JobSpec) -> JobSpec:
    """What a decoder needs to know of a job: not what it was made of."""
    slim = JobSpec()
    slim.CopyFrom(spec)
    for name in ("prompt", "negative_prompt", "attachments"):
        slim.ClearField(name)
    for name in [name for name, value in slim.extra.fields.items() if value.WhichOneof("kind") not in _NO_TEXT]:
        del slim.extra.fields[name]
    return slim
