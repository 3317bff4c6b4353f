"""A denoiser in this process, called over real gRPC and NATS: so that calls and device work share one clock."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import torch

from bench.conditioning import encode_alone
from bench.long_model import spec_of, write_long_model
from services.denoiser.config import DenoiserConfig
from services.denoiser.server import DenoiserServer
from services.stage.checkpoint import DENOISE
from services.stage.worker import WorkerHost
from services.stage.yield_points import add_yield_points
from tests.natsd import NatsServer
from triptych.exchange import Exchange, ExchangeConfig
from triptych.logs import configure_logs
from triptych.rpc import RpcServer, open_channel
from triptych.v1.denoiser_service_pb2 import AmendDenoiseRequest, DenoiseRequest
from triptych.v1.denoiser_service_pb2_grpc import DenoiserServiceStub
from triptych.v1.encoder_service_pb2 import StageCall
from triptych.v1.job_pb2 import STAGE_DENOISE, Amendment, Conditioning, JobSpec

_NO_MORE: Mapping[str, Path] = MappingProxyType({})


@dataclass
class Blocks:
    """When blocks of the long model began (`time.perf_counter`)."""

    began: list[float] = field(default_factory=list)


class BenchDenoiser:
    """The denoiser, and what is needed to call it."""

    def __init__(
        self, host: WorkerHost, server: DenoiserServer, stub: Any, encoded: dict[str, list[Conditioning]]
    ) -> None:
        self.host = host
        self.server = server
        self.blocks = Blocks()
        self._stub = stub
        self.encoded = encoded
        self._ids = (f"job-{index}" for index in count(1))

    def call(self, rank: float) -> StageCall:
        """A new job's first start."""
        return StageCall(job_id=next(self._ids), attempt=1, epoch=1, rank=rank)

    async def amend(self, call: StageCall, amendment: Amendment | None = None) -> int:
        """Give a job the call's rank, and change its steps; how many it is to run then."""
        return int((await self._stub.AmendDenoise(AmendDenoiseRequest(call=call, amendment=amendment))).step_count)

    def denoise(
        self,
        spec: JobSpec,
        rank: float,
        conditioning: list[Conditioning] | None = None,
        call: StageCall | None = None,
    ) -> "grpc.aio.UnaryStreamCall[Any, Any]":
        """The call's events; by default with the conditioning that all jobs of the model share."""
        call = call or self.call(rank)
        request = DenoiseRequest(call=call, spec=spec, conditioning=conditioning or self.encoded[spec.model])
        stream: grpc.aio.UnaryStreamCall[Any, Any] = self._stub.Denoise(request)
        return stream

    async def start_long(self, rank: float) -> "grpc.aio.UnaryStreamCall[Any, Any]":
        """A long job that has done its first step, and goes on until it is cancelled."""
        stream = self.denoise(spec_of("long", 1000), rank)
        while not (await stream.read()).progress.step:
            pass
        return stream

    async def seconds(self, spec: JobSpec, rank: float) -> float:
        """How long a job takes, from the call to its end."""
        began = time.perf_counter()
        async for _ in self.denoise(spec, rank):
            pass
        return time.perf_counter() - began


@asynccontextmanager
async def bench_denoiser(
    folder: Path, more: Mapping[str, Path] = _NO_MORE, **settings: Any
) -> AsyncIterator[BenchDenoiser]:
    """Start NATS and the denoiser, with the models "long" and "short" and `more` checkpoints, one torch thread."""
    configure_logs("warning")
    torch.set_num_threads(1)
    catalog = write_long_model(folder)
    with catalog.open("a") as file:
        file.writelines(f'[models.{name}]\ncheckpoint = "{place}"\ndtype = "float32"\n' for name, place in more.items())
    config = DenoiserConfig(device="cpu", catalog=catalog, **settings)
    nats = NatsServer(folder / "nats")
    nats.start()
    try:
        async with Exchange(ExchangeConfig(url=nats.url)) as exchange:
            host = WorkerHost(config, STAGE_DENOISE, exchange)
            host.read_catalog()
            host.thread.start()
            server = DenoiserServer(host, config)
            for model in host.models:
                checkpoint = host.open_checkpoint(model)
                await host.thread.run((0.0, ""), partial(server.load, checkpoint))
                host.serve(checkpoint)
            rpc = RpcServer("127.0.0.1:0", [server.service_name])
            await rpc.start(server.register)
            async with open_channel(rpc.address) as channel:
                bench = BenchDenoiser(host, server, DenoiserServiceStub(channel), {})
                for name in ("long", "short", *more):
                    bench.encoded[name] = await encode_alone(host, spec_of(name, 1))
                network = server.models.get("long").block(DENOISE).networks["transformer"]
                add_yield_points(network, lambda: bench.blocks.began.append(time.perf_counter()))
                yield bench
            await rpc.stop(0)
            host.thread.close()
    finally:
        nats.stop()
