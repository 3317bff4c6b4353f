"""A stage worker's life: connect, listen, load, announce, serve, drain."""

import asyncio
import contextlib
import os
import re
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar

import grpc
import structlog
import torch

from services.stage.allocator import keep_trimmed, share_arenas
from services.stage.calls import Calls
from services.stage.checkpoint import DENOISE, Checkpoint
from services.stage.config import WorkerConfig
from services.stage.device_memory import allocated_on
from services.stage.device_thread import DeviceThread
from services.stage.heartbeat import DeviceHangs, Heartbeat
from services.stage.loading import Loading
from services.stage.numerics import choose_device
from services.stage.opening import open_checkpoint
from services.stage.pause_bounds import PauseBounds
from services.stage.run_ahead import run_ahead_on
from services.stage.stage_name import stage_name
from services.stage.term import keep_term
from services.stage.twins import WorkerIdTaken
from services.stage.yield_points import YieldPoint
from triptych.address_file import address_file
from triptych.catalog import Catalog, CatalogModel
from triptych.config import ConfigError, load_config
from triptych.errors import TriptychError
from triptych.exchange import Exchange
from triptych.logs import configure_logs
from triptych.rpc import RpcServer, reachable_address
from triptych.rpc.guard import Guard, PeerName, SharedToken, both, everyone, read_token
from triptych.tasks import either, end
from triptych.v1.job_pb2 import Stage
from triptych.v1.worker_pb2 import CacheStats, ForwardCost

log = structlog.get_logger()
# Of the time to drain, what calls may be expected to take: an expectation is no promise.
_FINISH_PART = 0.8
Config = TypeVar("Config", bound=WorkerConfig)


class WorkerHost:
    """What a worker's service works with: exchange, device and its thread, models of the catalog, calls under way."""

    def __init__(self, config: WorkerConfig, stage: "Stage.ValueType", exchange: Exchange) -> None:
        self.config = config
        self.stage = stage
        self.exchange = exchange
        self.device = choose_device(config.device)
        bounds = PauseBounds(config.max_paused, config.max_paused_bytes, allocated_on(self.device))
        self.thread = DeviceThread("device", pause_bounds=bounds)
        self.yield_point = YieldPoint(self.thread, run_ahead_on(self.device, config.run_ahead_blocks))
        self.calls = Calls(config.max_active_jobs)
        self.worker_id = config.worker_id or default_worker_id(stage)
        self.models: dict[str, CatalogModel] = {}
        # The models that are served, and why the others are not that were tried: in words for a person.
        self.checkpoints: dict[str, Checkpoint] = {}
        self.refused: dict[str, str] = {}
        # Set, and replaced by a new one, when another model is served.
        self.served_changed = asyncio.Event()
        # The device loads a model: nobody knows for how long.
        self.loading = False
        # What is found out while loading, for the heartbeat.
        self.device_tflops = 0.0
        # Kinds of jobs that gain by being computed together.
        self.merge_keys: Callable[[], list[str]] = list
        self.load_s: dict[str, float] = {}
        self.forward_costs: dict[str, list[ForwardCost]] = {}
        # What is done beside the calls, from when the service is ready until it drains.
        self.background: list[Callable[[], Coroutine[Any, Any, None]]] = [partial(keep_trimmed, self.calls)]

    def read_catalog(self) -> None:
        """Find the models to serve. Raises `ValueError` for a name that the catalog does not have."""
        self.catalog = Catalog.load(self.config.catalog)
        names = [name.strip() for name in self.config.models.split(",") if name.strip()]
        for name in names or self.catalog.models:
            if name not in self.catalog.models:
                raise ValueError(f"models: {name!r} is not in {self.config.catalog}")
            self.models[name] = self.catalog.models[name]

    def open_checkpoint(self, name: str) -> Checkpoint:
        """The model's checkpoint, as `open_checkpoint` opens it. Raises `ConfigError` too, if it has no folder."""
        return open_checkpoint(name, self.catalog.checkpoint(name), self.models[name], self.block_names)

    def block_names(self, checkpoint: Checkpoint) -> list[str]:
        """The blocks of a checkpoint that this stage runs."""
        if self.stage == Stage.STAGE_DENOISE:
            return [DENOISE]
        return checkpoint.encode_names if self.stage == Stage.STAGE_ENCODE else checkpoint.decode_names

    def serve(self, checkpoint: Checkpoint) -> None:
        """A model is loaded: from now on it is served."""
        self.checkpoints[checkpoint.name] = checkpoint
        self.refused.pop(checkpoint.name, None)
        changed, self.served_changed = self.served_changed, asyncio.Event()
        changed.set()

    def hand_back_waiting(self) -> None:
        """End the calls whose work waits for the device still: elsewhere it need not wait for this worker's end."""
        self.calls.hand_back(self.thread.waits)

    def dtype(self, model: str) -> torch.dtype:
        """The element type of this stage's weights."""
        entry = self.models[model]
        own = {Stage.STAGE_ENCODE: entry.encoder_dtype, Stage.STAGE_DECODE: entry.decoder_dtype}.get(self.stage)
        dtype: torch.dtype = getattr(torch, own or entry.dtype)
        return dtype


class StageService(Protocol):
    """What the encoder, the denoiser and the decoder have in common."""

    service_name: str

    def register(self, server: grpc.aio.Server) -> None:
        """Add the servicer."""

    def load(self, checkpoint: Checkpoint) -> None:
        """Load the stage of a model; runs on the device thread. A model for which it raises is not served."""

    def hand_back(self, within_s: float) -> None:
        """The worker drains: end the calls that need not, or cannot, be finished within so many seconds."""

    def cache_stats(self) -> CacheStats:
        """Figures of a cache, if there is one."""


async def run_worker(
    config: WorkerConfig, stage: "Stage.ValueType", make_service: Callable[[WorkerHost], StageService]
) -> None:
    """Run a worker until SIGTERM or SIGINT; then drain and return."""
    configure_logs(config.log_level)
    torch.set_num_threads(config.threads or max(1, len(os.sched_getaffinity(0)) - 1))
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    async with Exchange(config.exchange) as exchange:
        host = WorkerHost(config, stage, exchange)
        host.read_catalog()
        service = make_service(host)
        with structlog.contextvars.bound_contextvars(stage=stage_name(stage), worker=host.worker_id):
            await _serve(host, service, ending)


async def _serve(host: WorkerHost, service: StageService, ending: asyncio.Event) -> None:
    guard, tls = _guard(host.config), host.config.tls
    server = RpcServer(host.config.listen, [service.service_name], guard=guard, tls=tls)
    await server.start(service.register)
    address = host.config.advertise or reachable_address(server.address, host.config.exchange.servers[0])
    heartbeat = Heartbeat(host, server, address, service.cache_stats, ending.set)
    beating = asyncio.create_task(heartbeat.run())
    term = asyncio.create_task(keep_term(host))
    host.thread.start()
    try:
        with address_file(host.config.address_file, server.address):
            log.info("worker_listening", address=server.address, device=str(host.device))
            loading = Loading(host, service.load, heartbeat.serve)
            await _first(asyncio.create_task(loading.first()), ending)
            if not ending.is_set():
                async with _background(host, loading.again):
                    await _first(beating, ending)
            log.info("worker_draining")
            await heartbeat.drain()
            service.hand_back(_FINISH_PART * host.config.drain_seconds)
            await host.calls.drain(host.config.drain_seconds)
            if heartbeat.refused is not None:
                raise heartbeat.refused
    finally:
        host.thread.close()
        await end(beating, term)
        await server.stop(1.0)
    log.info("worker_stopped")


def _guard(config: WorkerConfig) -> Guard:
    """Only the router may call: by its token, its certificate, or both. Raises `ValueError` for a bad token file."""
    shown = PeerName("router") if config.tls.ca is not None else everyone
    return shown if config.token_file is None else both(shown, SharedToken(read_token(config.token_file)))


@contextlib.asynccontextmanager
async def _background(host: WorkerHost, *more: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """What is done beside the calls. It ends with the block, and takes nothing with it if it fails."""
    tasks = [asyncio.create_task(_guarded(work)) for work in (*host.background, *more)]
    try:
        yield
    finally:
        await end(*tasks)


async def _guarded(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await work()
    except Exception:
        log.exception("background_work_failed")


async def _first(work: "asyncio.Task[None]", ending: asyncio.Event) -> None:
    """Wait until the work is done (its error is raised here) or the end is wanted."""
    await either(work, ending)
    if work.done():
        work.result()


def default_worker_id(stage: "Stage.ValueType") -> str:
    """Return a name that is unique by itself: containers may have one host name, and the same process ids."""
    host = re.sub("[^A-Za-z0-9_-]", "-", socket.gethostname())[:40]
    return f"{stage_name(stage)}-{host}-{secrets.token_hex(4)}"


def main(kind: type[Config], stage: "Stage.ValueType", make: Callable[[WorkerHost, Config], StageService]) -> None:
    """A worker's whole program. What keeps it from starting is said in one line: exit status 2 for settings, else 1."""
    share_arenas()
    program = f"triptych {stage_name(stage)}r"
    config = load_config(kind, program)
    status = 0
    try:
        asyncio.run(run_worker(config, stage, lambda host: make(host, config)))
    except (ConfigError, ValueError) as error:
        status = _complain(program, error, 2)
    except (TriptychError, DeviceHangs, WorkerIdTaken, OSError) as error:
        status = _complain(program, error, 1)
    sys.stdout.flush()
    sys.stderr.flush()
    # All is drained and closed. Taking torch apart as well takes seconds, and can abort in its own threads.
    os._exit(status)


def _complain(program: str, error: Exception, status: int) -> int:
    print(f"{program}: {error}", file=sys.stderr)
    return status
