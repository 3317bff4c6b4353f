"""A device that does not go on ends its worker, so that the router takes its jobs elsewhere."""

import asyncio
import threading
from pathlib import Path

import pytest

from services.denoiser.config import DenoiserConfig
from services.stage.heartbeat import DeviceHangs, Heartbeat
from services.stage.worker import WorkerHost
from triptych.exchange import Exchange
from triptych.rpc import RpcServer
from triptych.v1.job_pb2 import STAGE_DENOISE
from triptych.v1.worker_pb2 import CacheStats


async def test_work_that_hangs_ends_the_worker(exchange: Exchange, tiny_checkpoints: Path) -> None:
    config = DenoiserConfig(
        device="cpu", catalog=tiny_checkpoints / "models.toml", hang_seconds=0.2, heartbeat_seconds=0.01
    )
    host = WorkerHost(config, STAGE_DENOISE, exchange)
    server = RpcServer("127.0.0.1:0", ["triptych.v1.DenoiserService"])
    await server.start(lambda server: None)
    beating = asyncio.create_task(Heartbeat(host, server, server.address, CacheStats).run())
    # While it loads, and while nothing runs, it may be silent for as long as it likes.
    heartbeat = Heartbeat(host, server, server.address, CacheStats)
    await heartbeat.serve()
    running = asyncio.create_task(heartbeat.run())
    go = threading.Event()
    host.thread.start()
    hanging = asyncio.create_task(host.thread.run((1.0, "job"), lambda: go.wait(30)))
    async with asyncio.timeout(20):
        with pytest.raises(DeviceHangs, match="no device work has gone on"):
            await running
    assert not beating.done(), "it is loading"
    go.set()
    await hanging
    assert host.thread.silent_s == 0
    beating.cancel()
    host.thread.close()
    await server.stop(0)
