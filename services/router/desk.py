"""All that answers clients, wired together once the router is in charge."""

import asyncio
from collections.abc import Callable
from typing import Self

import structlog

from services.router.access.quotas import Quotas
from services.router.config import RouterConfig
from services.router.core.events import EncodesBounded
from services.router.driver import Driver
from services.router.intake.amend import Amend
from services.router.intake.appraiser import Appraiser
from services.router.intake.attendance import Attendance
from services.router.intake.intake import Intake
from services.router.jobs import JobTable, LiveJob
from services.router.leadership.lease import Leadership
from services.router.pricing import Pricing
from services.router.reads.downloads import Downloads
from services.router.reads.listing import Listing
from services.router.reads.previews import PreviewFeed
from services.router.reads.watch import Watch
from services.router.store.estimates import Estimates
from services.router.store.event_log import EventStore
from services.router.store.log_pruning import LogPruning
from services.router.store.pruning import Pruning
from services.router.store.record_pruning import RecordPruning
from services.router.store.recorders import Recorders
from services.router.store.records import JobStore
from services.router.store.restore import Restore
from services.router.store.retention import BundlePruning, Retention
from services.router.store.room import Room
from services.router.workers.roll import Roll
from triptych.catalog import Catalog
from triptych.exchange import Exchange
from triptych.tasks import end

log = structlog.get_logger()

_FLUSH_S = 2.0


class Desk:
    """The parts of a router of one term. Used as `async with`: it takes up earlier jobs, then listens to workers.

    On the way out it stops what runs, at once; `drain` before that gives it time.
    """

    def __init__(
        self,
        config: RouterConfig,
        catalog: Catalog,
        exchange: Exchange,
        leadership: Leadership,
        give_up: Callable[[str], None],
        quotas: Quotas,
        roll: Roll,
    ) -> None:
        self.epoch = epoch = leadership.epoch
        self._roll = roll
        self._give_up = give_up
        self.catalog = catalog
        self._exchange = exchange
        self._config = config
        events, records = EventStore(exchange), JobStore(exchange)
        self.pricing = pricing = Pricing(catalog)
        self._estimates = Estimates(exchange, pricing, epoch)
        self.jobs = JobTable(config.max_ended_jobs, config.ended_jobs_s)
        self._retention = retention = Retention(exchange, config.exchange, self.jobs, leadership.confirm)
        kept_s = max(config.exchange.latents_ttl_s, config.exchange.outputs_ttl_s)
        prunings: dict[str, Pruning] = {
            "EVENTS": LogPruning(events, self.jobs, leadership.confirm),
            "CONDITIONING": BundlePruning(retention, "conditioning"),
            "LATENTS": BundlePruning(retention, "latents"),
            "KV_jobs": RecordPruning(records, self.jobs, kept_s, leadership.confirm),
        }
        self._room = Room(
            exchange,
            config.store_high_water,
            prunings,
            bound_encodes=lambda ahead_jobs: self.driver.handle(EncodesBounded(ahead_jobs)),
        )
        self._recorders = Recorders(
            events, records, epoch, leadership.confirm, self._end, give_up, scarce=lambda: self._room.scarce
        )
        self.driver = Driver(config, epoch, pricing, self.jobs, self._recorders, leadership.confirm, give_up, exchange)
        self.attendance = Attendance(config.disconnect_grace_s, self.driver.cancel)
        self._restore = Restore(
            exchange, events, records, self.jobs, self._recorders, self.driver, self.attendance, retention
        )
        self.intake = Intake(
            config,
            Appraiser(catalog, pricing, self.driver.fleet),
            self.driver,
            self.jobs,
            self._recorders,
            records,
            quotas,
            self.attendance,
            self._restore,
            self._room,
        )
        self.amend = Amend(
            catalog, exchange, self.driver, self.intake, self.jobs, self._recorders, records, quotas, retention
        )
        self.watch = Watch(self.jobs, events, records, PreviewFeed(exchange.control))
        self.listing = Listing(self.jobs, records, config.page_size, config.max_page_size)
        self.downloads = Downloads(exchange, config.max_downloads, config.download_stall_s)
        self._listening: asyncio.Task[None] | None = None
        self._saving: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._tidying: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._estimates.restore()
        await self._restore.run()
        for subject, beat in self._roll.fresh(self._config.worker_timeout_s):
            self.driver.fleet.hear(subject, beat)
        await self._room.look()
        self._saving = asyncio.create_task(self._estimates.run())
        self._looking = asyncio.create_task(self._room.run())
        self._tidying = asyncio.create_task(self._retention.run())
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.attendance.close()
        await self.driver.drain(0.0)
        await self._recorders.close(_FLUSH_S)
        self.watch.close()
        self.driver.watch.close()
        running = (self._listening, self._saving, self._looking, self._tidying)
        await end(*(task for task in running if task is not None))
        await self._estimates.save()
        await self.driver.fleet.close()

    def _end(self, job: LiveJob) -> None:
        """The job's end is recorded. If a former leader recorded it, the scheduler has yet to hear of it."""
        self.driver.cancel(job.job_id)
        self.jobs.end(job)

    async def _listen(self) -> None:
        try:
            await self.driver.fleet.run(self._exchange.control)
        except Exception:
            log.exception("fleet_unheard")
            self._give_up("heartbeats can no longer be heard")

    async def drain(self) -> None:
        """Take nothing new; let what runs go on for `drain_seconds`."""
        await self.driver.drain(self._config.drain_seconds)
