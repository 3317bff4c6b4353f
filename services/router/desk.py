"""All that answers clients, wired together once the router is in charge."""

import asyncio
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
from services.router.leadership.mandate import Mandate
from services.router.pricing import Pricing
from services.router.reads.downloads import Downloads
from services.router.reads.listing import Listing
from services.router.reads.previews import PreviewFeed
from services.router.reads.watch import Watch
from services.router.store.disk import Disk
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
        mandate: Mandate,
        quotas: Quotas,
        roll: Roll,
    ) -> None:
        self.epoch = mandate.epoch
        self.catalog = catalog
        self._config = config
        self._exchange = exchange
        self._mandate = mandate
        self._roll = roll
        self._running: list[asyncio.Task[None]] = []
        events, records = EventStore(exchange), JobStore(exchange)
        self.pricing = Pricing(catalog)
        self._estimates = Estimates(exchange, self.pricing, mandate.epoch)
        self.jobs = jobs = JobTable(config.max_ended_jobs, config.ended_jobs_s)
        self._retention = retention = Retention(exchange, config.exchange, jobs, mandate.confirm)
        self._room = Room(exchange, config.store_high_water, self._prunings(events, records), self._bound_encodes)
        self.disk = Disk(exchange)
        self._recorders = recorders = Recorders(events, records, mandate, self._end, lambda: self._room.scarce)
        self.driver = driver = Driver(config, mandate, self.pricing, jobs, recorders, exchange, self.disk)
        self.attendance = Attendance(config.disconnect_grace_s, jobs, driver.cancel)
        self._restore = Restore(exchange, events, records, jobs, recorders, driver, self.attendance, retention)
        self.intake = Intake(
            config,
            Appraiser(catalog, self.pricing, driver.fleet, driver.clock),
            driver,
            jobs,
            recorders,
            records,
            quotas,
            self.attendance,
            self._restore,
            self._room,
            self.disk,
        )
        self.amend = Amend(catalog, exchange, driver, self.intake, jobs, recorders, records, quotas, retention)
        self.watch = Watch(jobs, events, records, PreviewFeed(exchange.control))
        self.listing = Listing(jobs, records, config.page_size, config.max_page_size)
        self.downloads = Downloads(exchange, config.max_downloads, config.download_stall_s)

    def _prunings(self, events: EventStore, records: JobStore) -> dict[str, Pruning]:
        """What makes room, by the stream that gets full."""
        confirm, ttls = self._mandate.confirm, self._config.exchange
        return {
            "EVENTS": LogPruning(events, self.jobs, confirm),
            "CONDITIONING": BundlePruning(self._retention, "conditioning"),
            "LATENTS": BundlePruning(self._retention, "latents"),
            "KV_jobs": RecordPruning(records, self.jobs, max(ttls.latents_ttl_s, ttls.outputs_ttl_s), confirm),
        }

    async def __aenter__(self) -> Self:
        await self._estimates.restore()
        await self._restore.run()
        for subject, beat in self._roll.fresh(self._config.worker_timeout_s):
            self.driver.fleet.hear(subject, beat)
        await self._room.look()
        works = (self._estimates.run(), self.disk.run(), self._room.run(), self._retention.run(), self._listen())
        self._running = [asyncio.create_task(work) for work in works]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.attendance.close()
        await self.driver.drain(0.0)
        await self._recorders.close(_FLUSH_S)
        self.watch.close()
        self.driver.watch.close()
        await end(*self._running)
        await self._estimates.save()
        await self.driver.fleet.close()

    def _end(self, job: LiveJob) -> None:
        """The job's end is recorded. If a former leader recorded it, the scheduler has yet to hear of it."""
        self.driver.cancel(job.job_id)
        self._retention.note_end(job.record)
        self.jobs.end(job)

    def _bound_encodes(self, ahead_jobs: int | None) -> None:
        self.driver.handle(EncodesBounded(ahead_jobs))

    async def _listen(self) -> None:
        try:
            await self.driver.fleet.run(self._exchange.control)
        except Exception:
            log.exception("fleet_unheard")
            self._mandate.give_up("heartbeats can no longer be heard")

    async def drain(self) -> None:
        """Take nothing new; let what runs go on for `drain_seconds`."""
        await self.driver.drain(self._config.drain_seconds)
