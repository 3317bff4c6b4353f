"""Calls to workers, and what their ends mean to the scheduler."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

import grpc
import structlog
from google.protobuf.duration_pb2 import Duration

from services.router.config import RouterConfig
from services.router.core.actions import StartTask
from services.router.core.events import (
    Event,
    LatentsReady,
    ResultGone,
    TaskFailed,
    TaskFinished,
    TaskProgressed,
    TaskSaved,
)
from services.router.core.job import Stage, Task
from services.router.jobs import LiveJob
from services.router.leadership.lease import Deposed
from services.router.leadership.mandate import Mandate
from services.router.pricing import Pricing
from services.router.store.disk import Disk
from services.router.store.recorders import Recorders
from services.router.workers.call import Call
from services.router.workers.failures import Blow, beyond_store, judge
from services.router.workers.fleet import Fleet
from services.router.workers.token_counts import cut_texts
from triptych.durations import duration_of, seconds_of
from triptych.errors import Reason, TriptychError, from_rpc_error, to_status
from triptych.exchange import DiskFull, Exchange, ExchangeError
from triptych.rpc.responses import responses
from triptych.v1 import job_pb2
from triptych.v1.decoder_service_pb2 import DecodeRequest
from triptych.v1.decoder_service_pb2_grpc import DecoderServiceStub
from triptych.v1.denoiser_service_pb2 import AmendDenoiseRequest, DenoiseFinished, DenoiseRequest
from triptych.v1.denoiser_service_pb2_grpc import DenoiserServiceStub
from triptych.v1.encoder_service_pb2 import EncodeRequest
from triptych.v1.encoder_service_pb2_grpc import EncoderServiceStub
from triptych.v1.job_pb2 import Amendment, JobEncoded

log = structlog.get_logger()

_AMEND_TIMEOUT_S = 5.0
# The call may be on its way to the worker still.
_AMEND_RETRY_S = (0.05, 0.2, 0.5, 1.0)


class StageCalls:
    """One call a task at most. Reports what comes of each to the scheduler; of a call that was stopped, nothing.

    One that failed because the disk is full is reported when there is room again: until then every other would, too.
    """

    def __init__(
        self,
        config: RouterConfig,
        mandate: Mandate,
        fleet: Fleet,
        pricing: Pricing,
        recorders: Recorders,
        report: Callable[[Event], None],
        exchange: Exchange,
        disk: Disk,
    ) -> None:
        self._config = config
        self._mandate = mandate
        self._fleet = fleet
        self._pricing = pricing
        self._recorders = recorders
        self._report_event = report
        self._exchange = exchange
        self._disk = disk
        self._calls: dict[Task, Call] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    async def idle(self, timeout_s: float) -> bool:
        """Wait until no call is under way, so long at most; returns whether none is."""
        if self._calls and timeout_s > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), timeout_s)
        return not self._calls

    def start(self, job: LiveJob, start: StartTask) -> None:
        """Make the call that the scheduler asks for."""
        worker = self._fleet.get(start.worker_id)
        assert worker is not None, "the scheduler knows the fleet's workers only"
        call = Call(job, start, worker, self._recorders.of(job), tuple(job.record.conditioning))
        self._calls[start.task] = call
        self._idle.clear()
        call.running = asyncio.get_running_loop().create_task(self._run(call))

    def stop(self, task: Task) -> None:
        """Give a call up: cancelled at the worker, unheard from now on."""
        call = self._calls.get(task)
        if call is not None:
            self._drop(call)
            assert call.running is not None
            call.running.cancel()

    async def amend(self, task: Task, rank: float, amendment: Amendment) -> int | None:
        """Tell the worker that runs the denoise; returns the steps that its outputs will run.

        None if it runs no more, or cannot be told: who runs it next is told from the start.
        """
        call = self._calls.get(task)
        for delay_s in (*_AMEND_RETRY_S, 0.0):
            if call is None or self._calls.get(task) is not call:
                return None
            stage_call = call.message(self._mandate.epoch)
            stage_call.rank = rank
            request = AmendDenoiseRequest(call=stage_call, amendment=amendment)
            try:
                stub = DenoiserServiceStub(call.worker.channel)
                response = await stub.AmendDenoise(request, timeout=_AMEND_TIMEOUT_S)
                return int(response.step_count)
            except grpc.aio.AioRpcError as error:
                call.log.warning("amendment_untold", message=from_rpc_error(error).message)
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    return None
            await asyncio.sleep(delay_s)
        return None

    async def hand_back(self) -> None:
        """Have every denoise end with a checkpoint, and give the others up: they are soon done again."""
        denoises = [call for call in self._calls.values() if call.task.stage is Stage.DENOISE]
        for call in list(self._calls.values()):
            if call not in denoises:
                self.stop(call.task)
        await asyncio.gather(*(self._hand_back(call) for call in denoises))

    async def _hand_back(self, call: Call) -> None:
        request = AmendDenoiseRequest(call=call.message(self._mandate.epoch), hand_back=True)
        try:
            await DenoiserServiceStub(call.worker.channel).AmendDenoise(request, timeout=_AMEND_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            # It is stopped with the others; the next router has its last checkpoint.
            call.log.info("denoise_not_handed_back", message=from_rpc_error(error).message)

    def drop_worker(self, worker_id: str) -> frozenset[Task]:
        """Give up every call to a worker that is gone; returns the tasks of those that had not reached it."""
        dropped = [call for call in self._calls.values() if call.worker.worker_id == worker_id]
        for call in dropped:
            self.stop(call.task)
        return frozenset(call.task for call in dropped if not call.begun)

    def stop_all(self) -> None:
        for task in list(self._calls):
            self.stop(task)

    async def _run(self, call: Call) -> None:
        try:
            await self._mandate.confirm()
            event: Event | None = await self._perform(call)
        except Deposed as error:
            self._mandate.give_up(str(error))
            return
        except ExchangeError as error:
            # Whether another router leads cannot be told: nothing is started that it may have started.
            event = await self._postponed(call, error)
        except grpc.aio.AioRpcError as error:
            event = await self._end_of(call, error)
        except Exception:
            call.log.exception("call_broken")
            broken = TriptychError(Reason.INTERNAL, "An internal error; the router's log has it.")
            call.job.error = to_status(broken)
            event = TaskFailed(call.task, Reason.INTERNAL.name, broken.message, retryable=True, counts=True)
        if event is not None and self._calls.get(call.task) is call:
            self._drop(call)
            self._report_event(event)

    async def _postponed(self, call: Call, error: TriptychError) -> TaskFailed:
        """What to tell of a call that failed for the exchange's sake, as soon as it is of use to try it again."""
        if error.reason is Reason.DISK_FULL:
            self._disk.note(DiskFull(error.metadata.get("store", "")))
            await self._disk.has_room()
        return TaskFailed(call.task, error.reason.name, error.message, retryable=True, counts=False)

    async def _perform(self, call: Call) -> Event:
        match call.task.stage:
            case Stage.ENCODE:
                return await self._encode(call)
            case Stage.DENOISE:
                return await self._denoise(call)
            case Stage.DECODE:
                return await self._decode(call)

    async def _encode(self, call: Call) -> Event:
        call.recorder.write(call.started(job_pb2.Stage.STAGE_ENCODE))
        stub = EncoderServiceStub(call.worker.channel)
        request = EncodeRequest(call=call.message(self._mandate.epoch), spec=call.job.stage_spec)
        response = await call.answer(stub.Encode(request, timeout=self._config.encode_timeout_s))
        record, spent_s = call.job.record, seconds_of(response.device_time)
        del record.conditioning[:]
        record.conditioning.extend(response.conditioning)
        _add(record.job.encode_time, spent_s)
        cut = cut_texts(text for each in response.conditioning for text in each.texts)
        call.recorder.write(call.event(encoded=JobEncoded(cached=response.cached, cut_texts=cut)))
        if not response.cached:
            self._pricing.observe(call.job.spec, Stage.ENCODE, call.device, spent_s)
        # From the cache it says nothing of the worker's pace.
        return TaskFinished(call.task, 0.0 if response.cached else spent_s)

    async def _denoise(self, call: Call) -> Event:
        request = DenoiseRequest(
            call=call.message(self._mandate.epoch),
            spec=call.job.stage_spec,
            conditioning=call.conditioning,
            finished_outputs=sorted(call.start.finished_outputs),
            refined_latents=call.job.record.refined_latents,
            refined_step_count=call.job.record.refined_step_count,
        )
        record = call.job.record
        if record.HasField("checkpoint"):
            request.checkpoint.CopyFrom(record.checkpoint)
        async with responses(DenoiserServiceStub(call.worker.channel).Denoise(request)) as told:
            async for response in told:
                call.begun = True
                match response.WhichOneof("event"):
                    case "started":
                        call.recorder.write(call.started(job_pb2.Stage.STAGE_DENOISE))
                    case "progress":
                        call.recorder.progress(response.progress)
                        self._report(call, TaskProgressed(call.task, call.part_done(response.progress.fraction)))
                    case "latents":
                        call.job.keep_latents(response.latents)
                        call.recorder.save()
                        self._report(call, LatentsReady(call.job.job_id, response.latents.output_index))
                    case "checkpoint":
                        record.checkpoint.CopyFrom(response.checkpoint)
                        call.recorder.save()
                        saved = response.checkpoint
                        self._report(call, TaskSaved(call.task, saved.output_index, saved.step))
                    case "restart_only":
                        call.recorder.write(call.event(restart_only=response.restart_only))
                    case "paused":
                        call.recorder.write(call.event(paused=response.paused))
                    case "resumed":
                        call.recorder.write(call.event(resumed=response.resumed))
                    case "finished":
                        record.ClearField("checkpoint")
                        return self._denoised(call, response.finished)
        raise RuntimeError("the denoiser ended its stream without having finished")

    def _denoised(self, call: Call, finished: DenoiseFinished) -> Event:
        spent_s = seconds_of(finished.device_time)
        _add(call.job.job.denoise_time, spent_s)
        made = call.job.request.output_count - len(call.start.finished_outputs)
        if not call.job.steps_vary:
            self._pricing.observe_denoise(call.job.spec, call.device, spent_s, made, finished.measurements)
        return TaskFinished(call.task, spent_s)

    async def _decode(self, call: Call) -> Event:
        call.recorder.write(call.started(job_pb2.Stage.STAGE_DECODE))
        request = DecodeRequest(
            call=call.message(self._mandate.epoch),
            spec=call.job.stage_spec,
            latents=call.job.latents(call.task.output_index),
            conditioning=call.conditioning,
        )
        stub = DecoderServiceStub(call.worker.channel)
        response = await call.answer(stub.Decode(request, timeout=self._config.decode_timeout_s))
        spent_s = seconds_of(response.device_time)
        _add(call.job.job.decode_time, spent_s)
        call.recorder.write(call.event(output=response.output))
        self._pricing.observe(call.job.spec, Stage.DECODE, call.device, spent_s)
        return TaskFinished(call.task, spent_s)

    async def _end_of(self, call: Call, rpc_error: grpc.aio.AioRpcError) -> Event | None:
        """What a call's failure means to the scheduler; None if that has been told already."""
        error = from_rpc_error(rpc_error)
        call.log.warning("call_failed", reason=error.reason.name, message=error.message)
        call.job.error = to_status(error)
        if error.reason is Reason.DISK_FULL:
            return await self._postponed(call, error)
        event, blow = judge(call.task, call.begun, rpc_error.code(), error)
        if isinstance(event, ResultGone) and event.made_by is Stage.ENCODE and call.outdated:
            # What it has missed was made again for another of the job's tasks.
            event = TaskFailed(call.task, error.reason.name, error.message, retryable=True, counts=False)
        elif isinstance(event, ResultGone) and event.made_by is Stage.ENCODE and error.reason is Reason.BUNDLE_CORRUPT:
            await self._discard(call)
        elif call.task.stage is Stage.DENOISE and error.reason in (Reason.LATENTS_GONE, Reason.BUNDLE_CORRUPT):
            self._begin_anew(call)
        elif isinstance(event, TaskFailed) and event.awaits_room:
            event = self._unless_beyond(call, event, error)
        match blow:
            case Blow.DEPOSED:
                self._mandate.give_up(f"a worker said: {error.message}")
                return None
            case Blow.UNWILLING:
                self._fleet.shun(call.worker.worker_id)
            case Blow.UNREACHABLE if not await self._fleet.answers(call.worker.worker_id):
                # Takes the scheduler's other tasks on this worker, and this one, with it.
                self._fleet.lose(call.worker.worker_id, error.message)
                return None
            case Blow.UNREACHABLE if isinstance(event, TaskFailed) and event.counts:
                # The worker is there: if it is the process that it was, the way to it has failed, and not the job.
                event = replace(event, counts=not await self._fleet.lives(call.worker))
        return event

    def _begin_anew(self, call: Call) -> None:
        """The latents that the job was to go on from are gone or damaged: it runs all of its steps."""
        call.log.warning("refined_latents_gone")
        call.job.begin_anew()
        call.recorder.save()

    def _unless_beyond(self, call: Call, event: TaskFailed, error: TriptychError) -> TaskFailed:
        """The job waits for room, unless there will never be enough."""
        beyond = beyond_store(call.task, call.job.record, error, self._config.exchange)
        if beyond is None:
            return event
        call.job.error = to_status(beyond)
        return replace(event, blame=beyond.message, retryable=False, awaits_room=False)

    async def _discard(self, call: Call) -> None:
        """What is damaged must not be found again: encoders look only whether a bundle is there."""
        try:
            await asyncio.gather(*(self._exchange.delete(each.data) for each in call.conditioning))
        except ExchangeError as error:
            call.log.warning("damaged_bundles_left", error=str(error))

    def _report(self, call: Call, event: Event) -> None:
        if self._calls.get(call.task) is call:
            self._report_event(event)

    def _drop(self, call: Call) -> None:
        del self._calls[call.task]
        if not self._calls:
            self._idle.set()


def _add(total: Duration, more_s: float) -> None:
    total.CopyFrom(duration_of(seconds_of(total) + more_s))
