"""A router's life: connect, listen, stand by, lead, drain."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import fields, replace
from functools import partial
from typing import Any

import structlog

from services.router.access import permissions
from services.router.access.quotas import Quotas
from services.router.access.tokens import Tokens
from services.router.config import RouterConfig
from services.router.leadership.archive import Archive
from services.router.leadership.forward import Forward
from services.router.leadership.lease import Leadership
from services.router.leadership.reception import Reception
from services.router.leadership.standby import StandbyServer
from services.router.leadership.term import Term
from services.router.server import SERVICE_NAME, RouterServer
from services.router.workers.roll import Roll
from triptych.address_file import address_file
from triptych.catalog import Catalog
from triptych.exchange import Exchange
from triptych.rpc import Credentials, RpcServer, reachable_address
from triptych.rpc.guard import Guard
from triptych.tasks import end

log = structlog.get_logger()

_HEALTH_PAUSE_S = 0.25
_STOP_GRACE_S = 1.0


class Router:
    """One router process. `end` asks it to drain and stop; `run` returns its exit status.

    Of several one leads, the others stand by. `on_ready` is called with the listening address when it leads and takes
    jobs for the first time.
    """

    def __init__(self, config: RouterConfig, on_ready: Callable[[str], None] = lambda _: None) -> None:
        self._config = config
        self._on_ready = on_ready
        self._ending = asyncio.Event()
        # Health may be another one now.
        self._look = asyncio.Event()
        self._tokens = Tokens(config.tokens_file) if config.tokens_file else None
        self._quotas = Quotas(self._tokens.quota) if self._tokens else Quotas()
        self._leading = RouterServer(config.max_streams, self._quotas)
        self._standby: StandbyServer | None = None

    def end(self) -> None:
        """Hand over to another router, or leave what runs for the next one, then stop."""
        self._ending.set()
        self._look.set()

    def reload(self) -> None:
        """Read again what may change while it runs: the tokens."""
        if self._tokens is not None:
            self._tokens.reload()

    def reconfigure(self, config: RouterConfig) -> None:
        """Take over the scheduler's settings; of the others it is logged that they hold from the next start."""
        names = [each.name for each in fields(config) if each.name != "scheduler"]
        later = [name for name in names if getattr(config, name) != getattr(self._config, name)]
        if later:
            log.warning("settings_hold_after_restart", names=later)
        self._config = replace(self._config, scheduler=config.scheduler)
        if self._leading.desk is not None:
            self._leading.desk.driver.reload(config.scheduler)

    async def run(self) -> int:
        """Serve until asked to end; returns the exit status.

        Raises ConfigError for a bad catalog or tokens file, OSError if the address is taken, ExchangeError if NATS
        cannot be used.
        """
        catalog = Catalog.load(self._config.catalog)
        calls = self._config.max_streams * 2
        server = RpcServer(self._config.listen, [SERVICE_NAME], calls, guard=self._guard(), tls=self._config.tls)
        leading = self._leading
        async with Exchange(self._config.exchange) as exchange:
            await server.start(Reception(self._turn).register)
            address = self._config.advertise or reachable_address(server.address, self._config.exchange.servers[0])
            leadership = Leadership(exchange, address, self._config.exchange.leader_ttl_s)
            forward = Forward(leadership, address, self._peer_credentials())
            archive = Archive(self._config, exchange)
            self._standby = standby = StandbyServer(self._config.max_streams, self._quotas, archive, forward, leading)

            def term(roll: Roll) -> Term:
                ready = partial(self._tell_ready, server.address)
                return Term(self._config, catalog, exchange, leadership, leading, self._quotas, roll, ready)

            health = asyncio.create_task(self._tell_health(server, exchange, leadership))
            try:
                with address_file(self._config.address_file, server.address):
                    log.info("router_listening", address=server.address, advertised=address)
                    async with Roll(exchange.control) as roll:
                        await self._serve(leadership, partial(term, roll))
            finally:
                await end(health)
                await server.set_serving(False)
                await standby.close()
                await server.stop(_STOP_GRACE_S)
        log.info("router_stopped")
        return 0

    def _turn(self) -> RouterServer:
        """Who answers now."""
        return self._leading if self._leading.desk is not None or self._standby is None else self._standby

    def _tell_ready(self, address: str) -> None:
        self._look.set()
        desk = self._leading.desk
        if desk is not None and desk.driver.scheduler.config != self._config.scheduler:
            desk.driver.reload(self._config.scheduler)  # they changed while it took up what there was
        on_ready, self._on_ready = self._on_ready, lambda _: None
        on_ready(address)

    def _guard(self) -> Guard:
        if self._tokens is None:
            return permissions.open_to_everyone
        self._tokens.load()
        return permissions.for_tokens(self._tokens, self._quotas)

    def _peer_credentials(self) -> Credentials:
        files = self._config.peer_tls if self._config.peer_tls.wanted else self._config.tls
        return Credentials(tls=files if files.wanted else None)

    async def _serve(self, leadership: Leadership, term: Callable[[], Term]) -> None:
        """Stand by and lead, in turns, until asked to end."""
        pause_s = 0.0
        while not self._ending.is_set():
            log.info("router_standing_by")
            if await self._before_end(leadership.win(pause_s)):
                with structlog.contextvars.bound_contextvars(epoch=leadership.epoch):
                    await term().run(self._ending)
            # Others first: whoever could not go on may not be the best to go on.
            pause_s = 2 * self._config.exchange.leader_ttl_s

    async def _tell_health(self, server: RpcServer, exchange: Exchange, leadership: Leadership) -> None:
        """SERVING while NATS can be reached and somebody leads, until asked to end."""
        serving: bool | None = None
        while True:
            self._look.clear()  # before the look: what changes meanwhile is looked at again
            led = bool(self._leading.desk or leadership.other)
            usable = led and exchange.connected and not self._ending.is_set()
            if usable is not serving:
                serving = usable
                await server.set_serving(serving)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), _HEALTH_PAUSE_S)

    async def _before_end(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Whether the work was done before the router was asked to end; else it is stopped."""
        working = asyncio.create_task(work)
        ending = asyncio.create_task(self._ending.wait())
        await asyncio.wait([working, ending], return_when=asyncio.FIRST_COMPLETED)
        done = working.done()
        await end(working, ending)
        if done:
            working.result()
        return done
