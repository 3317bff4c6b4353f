"""One job in the denoiser: its outputs, each one's latents durable while the next one runs."""

import asyncio
import math
from collections.abc import AsyncIterator
from functools import partial

import structlog

from services.denoiser.amendments import Amendments
from services.denoiser.checkpoints import Checkpoints
from services.denoiser.config import DenoiserConfig
from services.denoiser.denoise_work import Denoised, DenoiseWork
from services.denoiser.job_kind import job_kind
from services.denoiser.output_observer import OutputObserver
from services.denoiser.pauses import Pauses
from services.denoiser.previews import Previews
from services.stage.calls import Call
from services.stage.conditioning import is_for
from services.stage.hosted_model import HostedModel
from services.stage.patience import put_patiently
from services.stage.short_memory import run_twice
from services.stage.worker import WorkerHost
from triptych.durations import duration_of
from triptych.errors import Reason, TriptychError, Violation, invalid
from triptych.exchange import Bundle
from triptych.tasks import let_go
from triptych.v1.denoiser_service_pb2 import DenoiseFinished, DenoiseRequest, DenoiseResponse, DenoiseStarted
from triptych.v1.job_pb2 import STAGE_DENOISE, Amendment, JobRestartOnly, Latents, Progress
from triptych.v1.worker_pb2 import Measurement

log = structlog.get_logger()


class Denoising:
    """Runs one request; `events` yields what happens until it is finished.

    Leaving `events` early, or its task being cancelled, stops the job before its next step.
    """

    def __init__(
        self, host: WorkerHost, config: DenoiserConfig, model: HostedModel, request: DenoiseRequest, call: Call
    ) -> None:
        self._host = host
        self._config = config
        self._model = model
        self._request = request
        self._call = call
        self._loop = asyncio.get_running_loop()
        # Bounded by steps × outputs, both checked.
        self._events: asyncio.Queue[DenoiseResponse | TriptychError | None] = asyncio.Queue()
        self._pauses = Pauses(self._loop, self._events.put_nowait)
        self._checkpoints = Checkpoints(host.exchange, model, host.device, request, self._events.put_nowait)
        self._amendments = Amendments(request.spec.step_count)
        self._previews: Previews | None = None
        if request.spec.HasField("preview"):
            limits_s = config.preview_timeout_seconds, config.preview_spacing_seconds
            self._previews = Previews(host.exchange, model, request, *limits_s)
        self._measurements: list[Measurement] = []
        self._device_s = 0.0
        self._kind = job_kind(model, request.spec) if config.merging == "on" else None
        # Part of each output that is done.
        self._fractions = dict.fromkeys(request.finished_outputs, 1.0)
        self._started_s: float | None = None
        self._restart_only = False

    async def events(self) -> AsyncIterator[DenoiseResponse]:
        """Started, progress after each step, checkpoints, latents as they become durable, finished."""
        running = asyncio.create_task(self._run())
        running.add_done_callback(lambda _: self._events.put_nowait(None))
        try:
            while (event := await self._events.get()) is not None:
                if isinstance(event, TriptychError):
                    raise event
                yield event
            await running
            yield DenoiseResponse(finished=self._finished())
        finally:
            running.cancel()
            self._pauses.close()
            if self._previews is not None:
                self._previews.close()
            await asyncio.wait([running])
            let_go(running)

    @property
    def underway(self) -> bool:
        """Whether a step is done: in this try, or in those that it goes on from."""
        return self._call.fraction > 0 or bool(self._request.finished_outputs) or self._request.HasField("checkpoint")

    def amend(self, rank: float, amendment: Amendment | None) -> int:
        """Change the job's rank, and what it is to run; returns its step count.

        The rank counts from the next yield point on, the step count from the next step.
        """
        self._request.call.rank = rank
        self._host.thread.rerank(self._request.call.job_id, rank)
        if amendment is not None:
            log.info("job_amended", job_id=self._request.call.job_id, change=amendment.WhichOneof("change"))
            self._amendments.amend(amendment)
        return self._amendments.step_count

    def hand_back(self, within_s: float) -> None:
        """End with DRAINING, so that the job goes on elsewhere, unless it will be done within so many seconds.

        Once it has begun, a checkpoint at its next step is made first. One that cannot be captured goes on.
        """
        if self._started_s is None:
            self._end_handed_back()
        elif not self._restart_only and self._left_s() > within_s:
            self._checkpoints.ask(self._end_handed_back)

    def _left_s(self) -> float:
        """How long it will run on at the pace that it had."""
        done = self._call.fraction
        return (self._loop.time() - (self._started_s or 0.0)) * (1.0 - done) / done if done else math.inf

    def _end_handed_back(self) -> None:
        # After what there is to tell, the checkpoint above all.
        self._events.put_nowait(TriptychError(Reason.DRAINING, "handed back: it goes on elsewhere"))

    def report(self, output_index: int, step: int, step_count: int) -> None:
        """So many steps of an output are done."""
        if self._started_s is None:
            self._started_s = self._loop.time()
            self._events.put_nowait(DenoiseResponse(started=DenoiseStarted()))
        self._pauses.begin(output_index)
        if step == 0:
            return
        self._fractions[output_index] = min(1.0, self._amendments.fraction(step, step_count))
        self._call.fraction = sum(self._fractions.values()) / self._request.spec.output_count
        progress = Progress(
            stage=STAGE_DENOISE,
            output_index=output_index,
            step=step,
            step_count=step_count,
            fraction=self._call.fraction,
        )
        self._events.put_nowait(DenoiseResponse(progress=progress))

    def restart_only(self, reason: str) -> None:
        """The job cannot be checkpointed."""
        if not self._restart_only:
            self._restart_only = True
            log.info("job_restart_only", job_id=self._request.call.job_id, reason=reason)
            self._events.put_nowait(DenoiseResponse(restart_only=JobRestartOnly(reason=reason)))

    async def _run(self) -> None:
        """Outputs that may be merged come to the device together; others one after the other."""
        missing = [
            index for index in range(self._request.spec.output_count) if index not in self._request.finished_outputs
        ]
        async with asyncio.TaskGroup() as storing:
            for output_index in missing:
                if self._kind is not None:
                    storing.create_task(self._make(output_index, storing))
                else:
                    await self._make(output_index, storing)

    async def _make(self, output_index: int, storing: asyncio.TaskGroup) -> None:
        denoised = await self._denoise(await self._work(output_index))
        self._pauses.end(output_index)
        self._measure(denoised)
        storing.create_task(self._store(output_index, denoised.latents))

    async def _denoise(self, work: DenoiseWork) -> Denoised:
        """Run it; if memory is short, once more with the device for itself."""
        rank = (self._request.call.rank, self._request.call.job_id)
        function = partial(work.run, self._host.thread)
        told = partial(self._pauses.told, work.output_index)
        holds = self._config.preemption == "off"
        return await run_twice(self._host.thread, rank, function, on_pause=told, holds=holds, kind=self._kind)

    async def _work(self, output_index: int) -> DenoiseWork:
        entries = [entry for entry in self._request.conditioning if is_for(entry, output_index)]
        bundles = await asyncio.gather(*(self._host.exchange.get(entry.data) for entry in entries))
        observer = OutputObserver(self, self._loop, self._host.thread, self._config, self._checkpoints, output_index)
        resume = await self._checkpoints.resume(output_index)
        return DenoiseWork(
            self._model,
            self._request.spec,
            output_index,
            list(bundles),
            observer,
            self._amendments,
            resume,
            refined=await self._refined(output_index),
            refined_step_count=self._request.refined_step_count,
            previews=self._previews.of(output_index) if self._previews is not None else None,
        )

    async def _refined(self, output_index: int) -> Bundle | None:
        """The latents to go on from, if the job refines another. Raises LATENTS_GONE."""
        for latents in self._request.refined_latents:
            if latents.output_index == output_index:
                return await self._host.exchange.get(latents.data)
        if self._request.refined_latents:
            raise invalid(Violation("refined_latents", f"has none for output {output_index}"))
        return None

    async def _store(self, output_index: int, bundle: Bundle) -> None:
        ref = await put_patiently(self._host.exchange, "latents", bundle)
        self._events.put_nowait(DenoiseResponse(latents=Latents(output_index=output_index, data=ref)))
        await self._checkpoints.drop(output_index)

    def _measure(self, denoised: Denoised) -> None:
        """An output's device time, all that is not in a forward too, by the batch of its forwards."""
        self._device_s += denoised.device_s
        for batch, share in denoised.forwards.shares().items():
            measurement = Measurement(
                model=self._request.spec.model,
                stage=STAGE_DENOISE,
                batch_size=batch.own,
                merged_batch_size=batch.merged if batch.merged > batch.own else 0,
                call_count=denoised.forwards.by_batch[batch].count,
            )
            measurement.device_time.CopyFrom(duration_of(denoised.device_s * share))
            self._measurements.append(measurement)

    def _finished(self) -> DenoiseFinished:
        return DenoiseFinished(device_time=duration_of(self._device_s), measurements=self._measurements)
