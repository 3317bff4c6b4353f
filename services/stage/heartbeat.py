"""How a worker makes itself known: a message on NATS every second, and what its health check answers."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import nats.errors
import structlog
from google.protobuf.timestamp_pb2 import Timestamp

from services.stage.numerics import device_label, numerics_id
from services.stage.stage_name import stage_name
from services.stage.twins import Twins, WorkerIdTaken
from triptych import __version__
from triptych.durations import duration_of
from triptych.exchange import ExchangeUnavailable
from triptych.heartbeats import heartbeat_subject
from triptych.rpc import RpcServer
from triptych.v1.worker_pb2 import (
    WORKER_STATE_DRAINING,
    WORKER_STATE_LOADING,
    WORKER_STATE_READY,
    WORKER_STATE_UNABLE,
    CacheStats,
    RefusedModel,
    WorkerHeartbeat,
    WorkerModel,
    WorkerState,
)

if TYPE_CHECKING:
    from services.stage.worker import WorkerHost

log = structlog.get_logger()


class DeviceHangs(Exception):
    """What runs on the device does not go on. It cannot be ended but with the process."""


class Heartbeat:
    """Announces one worker. `run` beats until cancelled; `serve` and `drain` change what it says, at once.

    `on_refused` is called if another worker was there before under the same id; `refused` says so.
    """

    def __init__(
        self,
        host: "WorkerHost",
        server: RpcServer,
        address: str,
        cache_stats: Callable[[], CacheStats],
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        self._host = host
        self._server = server
        self._address = address
        self._cache_stats = cache_stats
        self._state: WorkerState.ValueType = WORKER_STATE_LOADING
        self._models: list[WorkerModel] = []
        self._sequence = 0
        self._start_time = Timestamp()
        self._start_time.GetCurrentTime()
        self._subject = heartbeat_subject(stage_name(host.stage), host.worker_id)
        self._twins = Twins()
        self._on_refused = on_refused
        self._pending = asyncio.Event()

    @property
    def refused(self) -> WorkerIdTaken | None:
        """Why this worker has to end, if another has its id."""
        return self._twins.refused

    async def run(self) -> None:
        """Beat for ever, the first time at once.

        Raises `ExchangeUnavailable` when NATS has turned us away for good, and `DeviceHangs`.
        """
        self._check_connection()
        await self._host.exchange.control.subscribe(self._subject, cb=self._hear)
        while True:
            self._check_connection()
            self._check_device()
            self._pending.clear()
            await self._beat()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._pending.wait(), self._host.config.heartbeat_seconds)

    async def _hear(self, message: Any) -> None:
        """Take in what is said in this worker's name: by itself, as a rule."""
        if self._twins.hear(self._message(), message.data):
            self._pending.set()
        if self._twins.refused is not None:
            self._on_refused()

    async def serve(self) -> None:
        """Say which models are served and which are refused: READY, or UNABLE if none is served."""
        self._models = [self._model(name) for name in sorted(self._host.checkpoints)]
        if self._state != WORKER_STATE_DRAINING:
            self._state = WORKER_STATE_READY if self._models else WORKER_STATE_UNABLE
        await self._beat()

    async def drain(self) -> None:
        """Say DRAINING: nothing new, please."""
        self._state = WORKER_STATE_DRAINING
        await self._beat()

    def _model(self, name: str) -> WorkerModel:
        host = self._host
        model = WorkerModel(profile=host.checkpoints[name].profile, resident=True)
        model.forward_costs.extend(host.forward_costs.get(name, []))
        if name in host.load_s:
            model.load_time.CopyFrom(duration_of(host.load_s[name]))
        return model

    def _check_connection(self) -> None:
        if self._host.exchange.control.is_closed:
            raise ExchangeUnavailable("NATS has closed the connection for good; its log says why")

    def _check_device(self) -> None:
        """Loading has no such bound: it reads from who knows what disk."""
        silent_s = self._host.thread.silent_s
        loading = self._host.loading or self._state == WORKER_STATE_LOADING
        if not loading and silent_s > self._host.config.hang_seconds:
            jobs = ", ".join(sorted(active.job_id for active in self._host.calls.active))
            raise DeviceHangs(f"no device work has gone on for {silent_s:.0f} s; under way: {jobs or 'nothing'}")

    async def _beat(self) -> None:
        serving = self._state == WORKER_STATE_READY and self._host.exchange.connected
        await self._server.set_serving(serving)
        if not self._host.exchange.connected:
            return
        self._sequence += 1
        try:
            # Not flushed: if a flush of nats-py's takes too long, the PONG that comes later ends the client's reading.
            await self._host.exchange.control.publish(self._subject, self._message().SerializeToString())
        except nats.errors.Error as error:
            log.warning("heartbeat_missed", error=repr(error))

    def _message(self) -> WorkerHeartbeat:
        host = self._host
        return WorkerHeartbeat(
            worker_id=host.worker_id,
            stage=host.stage,
            address=self._address,
            version=__version__,
            sequence=self._sequence,
            start_time=self._start_time,
            state=self._state,
            device=device_label(host.device),
            numerics_id=numerics_id(host.device),
            models=self._models,
            refused_models=[RefusedModel(name=name, reason=why) for name, why in sorted(host.refused.items())],
            max_active_jobs=host.config.max_active_jobs,
            active_jobs=host.calls.active,
            labels=host.config.labels,
            cache=self._cache_stats(),
            interval=duration_of(host.config.heartbeat_seconds),
            device_tflops=host.device_tflops,
            merge_keys=host.merge_keys(),
            twin_start_time=self._twins.newest,
        )
