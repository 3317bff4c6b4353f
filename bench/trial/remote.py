"""A suite whose every process has a host of its own."""

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.trial.hosts import Hosts
from bench.trial.scene import CHECKPOINT_S
from triptych.client import Client
from triptych.exchange import ExchangeConfig
from triptych.exchange import server as nats_server
from triptych.supervisor import RestartPolicy, Service, ServiceState
from triptych.supervisor.process_log import ProcessLog
from triptych.supervisor.readiness import NatsReadiness, Readiness, ServiceReadiness
from triptych.v1.worker_pb2 import WORKER_STATE_READY

NATS_PORT, PORT = 4222, 7460
START_S = 180.0
GRACE_S = 10.0
LOOK_EVERY_S = 0.2


class RemoteSuite:
    """NATS, a router and workers ("encoder-0", …), each on the host of its name: `async with RemoteSuite(…)`."""

    def __init__(self, hosts: Hosts, names: Sequence[str], folder: Path, catalog: Path, router_config: Path) -> None:
        self.services: dict[str, Service] = {}
        self._hosts = hosts
        self._names = names
        self._folder = folder
        self._catalog = catalog
        self._router_config = router_config

    @property
    def address(self) -> str:
        """`host:port` of the router."""
        return f"{self._hosts.addresses['router']}:{PORT}"

    @property
    def exchange(self) -> ExchangeConfig:
        """A way to NATS."""
        return ExchangeConfig(url=f"nats://{self._hosts.addresses['nats']}:{NATS_PORT}")

    async def __aenter__(self) -> "RemoteSuite":
        try:
            async with asyncio.timeout(START_S):
                await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _start(self) -> None:
        for folder in ("nats", "logs", "run"):
            (self._folder / folder).mkdir(parents=True, exist_ok=True)
        self.services = {name: self._service(name) for name in self._names}
        self.services["nats"].start()
        await self.services["nats"].wait_for(ServiceState.READY)
        for service in self.services.values():
            service.start()
        await self._until_seen({name for name in self._names if "-" in name})

    def _service(self, name: str) -> Service:
        log = ProcessLog(self._folder / "logs" / f"{name}.log")
        readiness: Readiness = NatsReadiness(log) if name == "nats" else ServiceReadiness(self._address_file(name))
        return Service(name, partial(self._command, name), readiness, log, RestartPolicy(), lambda _: None)

    async def _until_seen(self, workers: set[str]) -> None:
        await self.services["router"].wait_for(ServiceState.READY)
        async with Client(self.address) as client:
            while True:
                fleet = await client.fleet()
                if workers <= {each.worker_id for each in fleet.workers if each.state == WORKER_STATE_READY}:
                    return
                await asyncio.sleep(LOOK_EVERY_S)

    async def _stop(self) -> None:
        others = [service for name, service in self.services.items() if name != "nats"]
        await asyncio.gather(*(service.stop(GRACE_S) for service in others))
        if "nats" in self.services:
            await self.services["nats"].stop(GRACE_S)

    def _address_file(self, name: str) -> Path:
        return self._folder / "run" / f"{name}.address"

    def _command(self, name: str) -> list[str]:
        own = self._hosts.addresses[name]
        if name == "nats":
            return self._hosts.command(name, nats_server.command_line(self._folder / "nats", host=own, port=NATS_PORT))
        role = name.partition("-")[0]
        flags = {
            "listen": f"{own}:{PORT}",
            "address_file": self._address_file(name),
            "catalog": self._catalog,
            "drain_seconds": 2.0,
            "insecure": "true",
            "exchange.url": self.exchange.url,
            "exchange.client_name": name,
        }
        if role == "router":
            flags["config"] = self._router_config
        else:
            flags |= {"worker_id": name, "device": "cpu", "threads": 1}
        if role == "denoiser":
            flags["checkpoint_seconds"] = CHECKPOINT_S
        words = [f"--{flag}={value}" for flag, value in flags.items()]
        return self._hosts.command(name, [sys.executable, "-P", "-m", f"services.{role}", *words])
