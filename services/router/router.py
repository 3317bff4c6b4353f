"""A router's life: connect, listen, take charge, serve, drain."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog

from services.router import access
from services.router.config import RouterConfig
from services.router.desk import Desk
from services.router.leadership import Leadership
from services.router.quotas import Quotas
from services.router.server import SERVICE_NAME, RouterServer
from services.router.tokens import Tokens
from triptych.address_file import address_file
from triptych.catalog import Catalog
from triptych.exchange import Exchange
from triptych.rpc import RpcServer
from triptych.rpc.guard import Guard

log = structlog.get_logger()

_HEALTH_PAUSE_S = 0.25
_STOP_GRACE_S = 1.0


class Router:
    """One router process. `end` asks it to drain and stop; `run` returns its exit status.

    `on_ready` is called with the listening address once jobs are taken.
    """

    def __init__(self, config: RouterConfig, on_ready: Callable[[str], None] = lambda _: None) -> None:
        self._config = config
        self._on_ready = on_ready
        self._ending = asyncio.Event()
        self._desk: Desk | None = None
        self._gave_up = False
        self._tokens = Tokens(config.tokens_file) if config.tokens_file else None
        self._quotas = Quotas(self._tokens.quota) if self._tokens else Quotas()

    def end(self) -> None:
        """Take nothing new, let what runs go on for a while, then stop."""
        self._ending.set()

    def reconfigure(self, config: RouterConfig) -> None:
        """Take over the scheduler's settings; the others hold from the next start."""
        self._config = replace(self._config, scheduler=config.scheduler)
        if self._desk is not None:
            self._desk.driver.reload(config.scheduler)

    async def run(self) -> int:
        """Serve until asked to end: 0; or until another router has taken over, or this one is broken: 1.

        Raises ConfigError for a bad catalog or tokens file, OSError if the address is taken, ExchangeError if NATS
        cannot be used.
        """
        catalog = Catalog.load(self._config.catalog)
        server = RpcServer(
            self._config.listen,
            [SERVICE_NAME],
            self._config.max_streams * 2,
            guard=self._guard(),
            tls=self._config.tls,
        )
        service = RouterServer(self._config.max_streams, self._quotas)
        async with Exchange(self._config.exchange) as exchange:
            await server.start(service.register)
            address = self._config.advertise or server.address
            try:
                with address_file(self._config.address_file, server.address):
                    log.info("router_listening", address=server.address)
                    await self._serve(catalog, exchange, server, service, address)
            finally:
                await server.stop(_STOP_GRACE_S)
        log.info("router_stopped", gave_up=self._gave_up)
        return 1 if self._gave_up else 0

    def reload(self) -> None:
        """Read again what may change while it runs: the tokens."""
        if self._tokens is not None:
            self._tokens.reload()

    def _guard(self) -> Guard:
        if self._tokens is None:
            return access.open_to_everyone
        self._tokens.load()
        return access.for_tokens(self._tokens, self._quotas)

    async def _serve(
        self, catalog: Catalog, exchange: Exchange, server: RpcServer, service: RouterServer, address: str
    ) -> None:
        leadership = Leadership(exchange, address, self._config.exchange.leader_ttl_s)
        epoch = await leadership.take()
        with structlog.contextvars.bound_contextvars(epoch=epoch):
            async with Desk(self._config, catalog, exchange, epoch, self._give_up, self._quotas) as desk:
                service.desk = self._desk = desk
                keeping = asyncio.create_task(self._keep(leadership))
                health = asyncio.create_task(_tell_health(server, exchange))
                log.info("router_ready")
                self._on_ready(server.address)
                await self._ending.wait()
                keeping.cancel()
                health.cancel()
                await asyncio.wait([keeping, health])
                await server.set_serving(False)
                if not self._gave_up:
                    log.info("router_draining")
                    await desk.drain()

    def _give_up(self, why: str) -> None:
        if not self._gave_up:
            log.error("router_gave_up", why=why)
        self._gave_up = True
        self._ending.set()

    async def _keep(self, leadership: Leadership) -> None:
        try:
            self._give_up(await leadership.keep())
        except Exception:
            log.exception("leadership_unkept")
            self._give_up("the leadership can no longer be kept")


async def _tell_health(server: RpcServer, exchange: Exchange) -> None:
    """SERVING while NATS can be reached."""
    serving: bool | None = None
    while True:
        if exchange.connected is not serving:
            serving = exchange.connected
            await server.set_serving(serving)
        await asyncio.sleep(_HEALTH_PAUSE_S)
