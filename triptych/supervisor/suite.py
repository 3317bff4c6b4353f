"""All services of a suite on one machine, from start to end."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from triptych.address import Address
from triptych.client import Client
from triptych.client.local_suite import LocalSuite
from triptych.errors import Reason, TriptychError
from triptych.exchange import ExchangeConfig, ExchangeError
from triptych.rpc.guard import read_token
from triptych.supervisor.certificates import NATS, CertificatesError
from triptych.supervisor.config import WORKER_ROLES, CommandLines, SuiteConfig, router_name, worker_name
from triptych.supervisor.disk import has_room, keep_writable, shortage
from triptych.supervisor.process_log import ProcessLog
from triptych.supervisor.readiness import NatsReadiness, Readiness, ServiceReadiness
from triptych.supervisor.renewal import tell_renewals
from triptych.supervisor.service import Service, ServiceState
from triptych.supervisor.state_dir import StateDir
from triptych.tasks import end
from triptych.tls import TlsError, TlsFiles
from triptych.v1.router_service_pb2 import Worker
from triptych.v1.worker_pb2 import WORKER_STATE_READY, WORKER_STATE_UNABLE

# What a process may take beyond its drain before it is killed.
STOP_MARGIN_S = 5.0
FLEET_LOOK_EVERY_S = 0.2
TOLD_LINES = 15
TOLD_CHARACTERS = 1000


class SuiteError(Exception):
    """The suite could not be started; the message has the last lines of the log at fault."""


class Suite:
    """A running suite: `async with Suite(SuiteConfig(state_dir, catalog)) as suite`.

    Entering waits until every worker can take jobs. `processes` are the services by name: "nats", "router",
    "encoder-0", "denoiser-0", …. No process outlives it, nor the thread whose event loop runs it.
    `disk_shortage` is the warning where the stores may outgrow their disk.
    """

    def __init__(self, config: SuiteConfig, *, on_change: Callable[[Service], None] | None = None) -> None:
        self.config = config
        self.processes: dict[str, Service] = {}
        self.disk_shortage: str | None = None
        self._told = on_change
        self._dir = StateDir(config.state_dir)
        self._commands = CommandLines(config, self._dir.run, self._dir.nats, self._dir.secrets)
        self._certificates = config.certificates
        self._nats_unwritable = asyncio.Event()
        self._keeping: list[asyncio.Task[None]] = []
        self._complete = False
        # Models that cannot be served, as the workers said when they were last waited for, and why.
        self.refused: dict[str, str] = {}

    @property
    def address(self) -> str:
        """`host:port` of the router, for clients on this machine; of several routers, separated by commas."""
        names = self._router_names
        return ",".join(self._local(self.processes[name].address or self.config.listen) for name in names)

    def _local(self, address: str) -> str:
        reachable = Address.parse(address).here
        # A certificate names localhost rather than an address; but that need not lead to IPv6.
        named = self.config.router_tls is not None and not reachable.is_ipv6
        return str(replace(reachable, host="localhost") if named else reachable)

    @property
    def _router_names(self) -> list[str]:
        return [router_name(index) for index in range(self.config.routers)]

    @property
    def exchange_url(self) -> str:
        """URL of NATS."""
        return f"nats://{self.processes[NATS].address}"

    @property
    def exchange(self) -> ExchangeConfig:
        """A way to NATS with all rights, the router's: to look inside."""
        secrets = self._dir.secrets
        tls = self._certificates.of("router") if self._certificates is not None else TlsFiles()
        return ExchangeConfig(url=self.exchange_url, user="router", password_file=secrets.password("router"), tls=tls)

    @property
    def token_file(self) -> Path | None:
        """A token that the router takes for an admin's; None if it asks for none."""
        return self._dir.secrets.admin_token if self.config.makes_tokens else None

    def client(self) -> Client:
        """A client of the router that may do everything."""
        token = read_token(self.token_file) if self.token_file else None
        return Client(self.address, token=token, tls=self.config.router_tls)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything and wait until the router sees every worker ready.

        Raises `SuiteRunning`, `SuiteError`, or `OSError` for a folder that cannot be used. After an error, `stop`.
        """
        self._dir.acquire()
        if not has_room(self._dir.nats):
            raise SuiteError(f"the disk of {self._dir.nats} is full; free some of it")
        self._make_secrets()
        _check_free(self.config.listen)
        try:
            async with asyncio.timeout(self.config.start_timeout_s):
                await self._start_all()
        except TimeoutError:
            raise SuiteError(self._late()) from None
        self._complete = True
        self._write_state()
        with contextlib.suppress(ExchangeError):
            self.disk_shortage = await shortage(self.exchange, self._dir.nats)
        if self._certificates is not None:
            # The services look for themselves.
            renewals = tell_renewals(self._certificates.of(NATS), self.processes[NATS].reload)
            self._keeping.append(asyncio.create_task(renewals))

    async def stop(self) -> None:
        """Drain workers and router, then stop NATS. Every process has ended when this returns."""
        self._complete = False
        await end(*self._keeping)
        grace_s = self.config.drain_s + STOP_MARGIN_S
        served = [service for name, service in self.processes.items() if name != NATS]
        await asyncio.gather(*(service.stop(grace_s) for service in served))
        if NATS in self.processes:
            await self.processes[NATS].stop(grace_s)
        self._dir.release()

    def kill_all(self) -> None:
        """Do not wait for what drains; for use while `stop` waits."""
        for service in self.processes.values():
            service.abort()

    async def kill(self, name: str) -> None:
        """SIGKILL one process and wait for its end. It starts again, unless restarts are off."""
        service = self.processes[name]
        service.kill()
        await service.wait_for(ServiceState.WAITING, ServiceState.FAILED, ServiceState.STOPPED)

    def set_restarts(self, enabled: bool) -> None:
        """Whether a process that dies starts again; holds from the next death on."""
        for service in self.processes.values():
            service.policy = replace(service.policy, enabled=enabled)

    async def stop_one(self, name: str) -> None:
        """Drain one process; it stays down until `start_one`."""
        await self.processes[name].stop(self.config.drain_s + STOP_MARGIN_S)

    async def start_one(self, name: str) -> None:
        """Start a process that is down, and wait until it is ready. Raises `SuiteError`."""
        self.processes[name].start()
        await self._until_ready([self.processes[name]])

    async def restart(self, name: str) -> None:
        """Drain one process and start it again."""
        await self.stop_one(name)
        await self.start_one(name)

    async def wait_ready(self, *names: str) -> None:
        """Wait until these processes, or all, are ready and the router sees their workers. Raises `SuiteError`."""
        chosen = [self.processes[name] for name in names or self.processes]
        await self._until_ready(chosen)
        await self._until_seen({service.name for service in chosen} & self._worker_names)

    async def scale(self, role: str, count: int) -> None:
        """Have `count` workers of a role: new ones are waited for, those with the highest numbers are drained."""
        names = [name for name in self.processes if name.startswith(f"{role}-")]
        for index in range(len(names), count):
            self._add_worker(role, index).start()
        for name in names[count:]:
            await self.stop_one(name)
            del self.processes[name]
        await self.wait_ready(*(worker_name(role, index) for index in range(count)))
        self._write_state()

    def _make_secrets(self) -> None:
        try:
            if self._certificates is not None:
                address = Address.parse(self.config.listen)
                self._certificates.make([] if address.is_everywhere else [address.host])
            self._dir.secrets.make(tls=self._certificates.of(NATS) if self._certificates is not None else None)
        except (CertificatesError, TlsError) as error:
            raise SuiteError(str(error)) from error

    async def _start_all(self) -> None:
        nats = self._add(NATS, lambda: self._commands.nats(self.processes[NATS].address))
        nats.start()
        self._keeping.append(asyncio.create_task(keep_writable(nats, self._nats_unwritable, self._dir.nats)))
        await self._until_ready([nats])
        for index in range(self.config.routers):
            self._add_router(index)
        for role in WORKER_ROLES:
            for index in range(self.config.count(role)):
                self._add_worker(role, index)
        for service in self.processes.values():
            service.start()
        await self.wait_ready()

    def _add_router(self, index: int) -> None:
        name = router_name(index)
        self._add(name, lambda: self._commands.router(index, self.processes[name].address, self.exchange_url))

    def _add_worker(self, role: str, index: int) -> Service:
        return self._add(worker_name(role, index), lambda: self._commands.worker(role, index, self.exchange_url))

    def _add(self, name: str, command: Callable[[], list[str]]) -> Service:
        log = ProcessLog(self._dir.logs / f"{name}.log")
        readiness: Readiness = NatsReadiness(log, self._nats_unwritable)
        if name != NATS:
            readiness = self._service_readiness(name)
        service = Service(name, command, readiness, log, self.config.restarts, self._changed)
        self.processes[name] = service
        return service

    def _service_readiness(self, name: str) -> Readiness:
        address_file = self._commands.address_file(name)
        if name in self._router_names:
            return ServiceReadiness(address_file, self.config.router_tls)
        tls = self._certificates.of("router") if self._certificates is not None else None
        return ServiceReadiness(address_file, tls, name.rpartition("-")[0])

    async def _until_ready(self, services: Sequence[Service]) -> None:
        async def ready(service: Service) -> None:
            if await service.wait_for(ServiceState.READY, ServiceState.FAILED) is ServiceState.FAILED:
                raise SuiteError(_account(service))

        tasks = [asyncio.create_task(ready(service)) for service in services]
        unable = asyncio.create_task(self._until_unable({service.name for service in services} & self._worker_names))
        all_ready = asyncio.gather(*tasks)
        either: list[asyncio.Future[Any]] = [all_ready, unable]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if unable.done():
                unable.result()
            await all_ready
        finally:
            for task in (*tasks, unable):
                task.cancel()

    @property
    def _worker_names(self) -> set[str]:
        return set(self.processes) - {NATS, *self._router_names}

    async def _until_seen(self, workers: set[str]) -> None:
        """Wait until the router sees them ready; what they cannot serve is in `refused` then."""
        async with self.client() as client:
            while True:
                seen = {worker.worker_id: worker for worker in await _workers(client)}
                if all(name in seen and seen[name].state == WORKER_STATE_READY for name in workers):
                    self.refused = _refused(seen.values())
                    return
                await asyncio.sleep(FLEET_LOOK_EVERY_S)

    async def _until_unable(self, workers: set[str]) -> None:
        """Raise `SuiteError` when one of them can serve no model at all; it goes on trying, but nobody need wait."""
        if not workers:
            await asyncio.Event().wait()
        # Before, its address may not be known.
        await self.processes[router_name(0)].wait_for(ServiceState.READY)
        async with self.client() as client:
            while True:
                for worker in await _workers(client):
                    if worker.worker_id in workers and worker.state == WORKER_STATE_UNABLE:
                        why = [f"  {model}: {reason}" for model, reason in _refused([worker]).items()]
                        raise SuiteError("\n".join([f"{worker.worker_id} can serve none of the models:", *why]))
                await asyncio.sleep(FLEET_LOOK_EVERY_S)

    def _changed(self, service: Service) -> None:
        if self._complete and service.state is ServiceState.READY:
            with contextlib.suppress(OSError):  # on a full disk; it is written again when NATS is started for that
                self._write_state()
        if self._told is not None:
            self._told(service)

    def _write_state(self) -> None:
        pids = {name: service.pid for name, service in self.processes.items()}
        running = {name: pid for name, pid in pids.items() if pid is not None}
        tls = self.config.router_tls or TlsFiles()
        ca, certificate, key = (str(path.absolute()) if path else "" for path in (tls.ca, tls.certificate, tls.key))
        LocalSuite(
            os.getpid(),
            self.address,
            self.exchange_url,
            running,
            token_file=str(self.token_file or ""),
            ca=ca,
            certificate=certificate,
            key=key,
        ).write(self._dir.path)

    def _late(self) -> str:
        unready = [service for service in self.processes.values() if service.state is not ServiceState.READY]
        head = f"not ready after {self.config.start_timeout_s:.0f} s"
        if not unready:
            return f"{head}: the router does not see every worker ready"
        return "\n".join([f"{head}:", *map(_account, unready)])


async def _workers(client: Client) -> Sequence[Worker]:
    try:
        return (await client.fleet()).workers
    except TriptychError as error:
        if error.reason in (Reason.UNAUTHENTICATED, Reason.PERMISSION_DENIED):
            raise SuiteError(
                f"the router asks for a token that it takes; set TRIPTYCH_TOKEN: {error.message}"
            ) from error
        return []


def _refused(workers: Iterable[Worker]) -> dict[str, str]:
    """Models that some of the workers cannot serve, and why, each reason once."""
    reasons: dict[str, list[str]] = {}
    for worker in workers:
        for refused in worker.refused_models:
            known = reasons.setdefault(refused.name, [])
            if refused.reason not in known:
                known.append(refused.reason)
    return {model: "; ".join(known) for model, known in sorted(reasons.items())}


def _account(service: Service) -> str:
    lines = list(service.log.tail)[-TOLD_LINES:]
    head = f"{service.name}: {service.detail or service.state.value} (log: {service.log.path})"
    return "\n".join([head, *(f"  | {line[:TOLD_CHARACTERS]}" for line in lines)])


def _check_free(listen: str) -> None:
    """The router would find out too, but three tries and some seconds later."""
    address = Address.parse(listen)
    try:
        places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        failures = [error for family, *_, place in places if (error := _try_bind(family, place)) is not None]
    except socket.gaierror as error:
        failures, places = [error], []
    # Of a name's addresses the router leaves those that this machine lacks.
    taken = [error for error in failures if error.errno == errno.EADDRINUSE]
    if taken or len(failures) >= len(places):
        why = (taken or failures)[0].strerror
        raise SuiteError(f"cannot listen on {listen}: {why}; choose another address")


def _try_bind(family: int, place: Any) -> OSError | None:
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        return error
    return None
