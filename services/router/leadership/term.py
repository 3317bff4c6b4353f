"""One term of a router that leads: from its beginning to its end, its drain, or the day another one leads."""

import asyncio
from collections.abc import Callable

import structlog

from services.router.access.quotas import Quotas
from services.router.config import RouterConfig
from services.router.desk import Desk
from services.router.leadership.lease import Leadership
from services.router.leadership.mandate import Mandate
from services.router.server import RouterServer
from services.router.workers.roll import Roll
from triptych.catalog import Catalog
from triptych.exchange import Exchange, ExchangeError
from triptych.tasks import end

log = structlog.get_logger()


class Term:
    """While it runs, `server` has a desk. `on_ready` is called once jobs are taken."""

    def __init__(
        self,
        config: RouterConfig,
        catalog: Catalog,
        exchange: Exchange,
        leadership: Leadership,
        server: RouterServer,
        quotas: Quotas,
        roll: Roll,
        on_ready: Callable[[], None],
    ) -> None:
        self._leadership = leadership
        self._server = server
        self._on_ready = on_ready
        self._over = asyncio.Event()
        mandate = Mandate(leadership.epoch, leadership.confirm, self._give_up)
        self._desk = Desk(config, catalog, exchange, mandate, quotas, roll)

    async def run(self, ending: asyncio.Event) -> None:
        """Lead for as long as possible, or until asked to end: then hand over, so that another router leads at once."""
        keeping = asyncio.create_task(self._keep())
        try:
            async with self._desk as desk:
                self._server.desk = desk
                self._leadership.open()
                log.info("router_ready")
                self._on_ready()
                await _either(ending, self._over)
                if not self._over.is_set():
                    log.info("router_draining")
                    await desk.drain()
                self._server.desk = None
        except (ExchangeError, TimeoutError) as error:
            # It could not take up what there is; another, or this one later, may.
            log.error("term_cut_short", error=repr(error))
        finally:
            self._server.desk = None
            await self._leadership.resign()
            await end(keeping)

    def _give_up(self, why: str) -> None:
        if not self._over.is_set():
            log.error("router_gave_up", why=why)
        self._over.set()

    async def _keep(self) -> None:
        try:
            self._give_up(await self._leadership.keep())
        except Exception:
            log.exception("leadership_unkept")
            self._give_up("the leadership can no longer be kept")


async def _either(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(*waiting)
