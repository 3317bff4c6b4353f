"""A trial: customers served by a suite until it is enough, then everything they were promised is looked up."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from bench.program import note
from bench.trial.accounts import Accounts, Entry
from bench.trial.customer import PATIENCE, Customer, Digests, make_undisturbed
from bench.trial.orders import kinds, long_kinds, long_orders, orders
from bench.trial.program import TrialOptions
from triptych.client import Client
from triptych.endings import is_abandoned
from triptych.exchange import Exchange, ExchangeConfig, events_subject
from triptych.exchange.streams import EVENTS_STREAM

NOTE_EVERY_S = 15.0
MAX_JOBS = 1_000_000


class Trial:
    """Customers of one suite, as `options` say, at the routers of `address` (several are separated by commas).

    First `prepare`, then `open`: in its block things may be disturbed. On leaving it no new orders are made, and what
    was accepted is waited for. `forgets`: stored jobs expire meanwhile, so that the router's list of them proves
    nothing.
    """

    def __init__(self, address: str, exchange: ExchangeConfig, options: TrialOptions, *, forgets: bool = False) -> None:
        self.accounts = Accounts()
        self.undisturbed: dict[str, Digests] = {}
        self.long_alone_s: float | None = None
        self._address = address
        # To look inside only.
        self._exchange = replace(exchange, manage_streams=False)
        self._options = options
        self._forgets = forgets
        self._enough = asyncio.Event()
        self._strangers: set[str] = set()

    async def prepare(self) -> None:
        """Make every kind of job undisturbed, the long ones beside each other."""
        self.undisturbed |= await make_undisturbed(self._address, kinds())
        if self._options.long_customers:
            began = time.monotonic()
            self.undisturbed |= await make_undisturbed(self._address, long_kinds(self._options.long_steps))
            self.long_alone_s = round(time.monotonic() - began, 1)
        self._strangers = await self._job_ids()
        note(f"{len(self.undisturbed)} kinds of jobs made undisturbed; the long ones took {self.long_alone_s} s")

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Serve customers while the block runs."""
        running = [asyncio.create_task(customer.run()) for customer in self._made()]
        noting = asyncio.create_task(self._note_on())
        try:
            yield
            self.stop_orders()
            # A customer that fails is a flaw of the program: it ends the trial.
            async with asyncio.timeout(self._options.settle_s):
                await asyncio.gather(*running)
        except TimeoutError:
            note(f"not everything was over {self._options.settle_s:.0f} s later")
        finally:
            for task in (*running, noting):
                task.cancel()
            await asyncio.gather(*running, noting, return_exceptions=True)
        if self._forgets:
            self.accounts.audit()
        else:
            self.accounts.audit(await self._job_ids() - self._strangers, await self._stored_events())

    def stop_orders(self) -> None:
        """Make no new orders from now on; what was accepted goes on."""
        if not self._enough.is_set():
            self._enough.set()
            note("no new orders; waiting for what was accepted")

    def open_long_jobs(self) -> list[Entry]:
        """Long jobs that are not over."""
        return [entry for entry in self.accounts.entries.values() if entry.order.long and not entry.end]

    def _made(self) -> list[Customer]:
        told = self._options
        short, long = orders(told.seed), long_orders(told.long_steps)
        queues = {f"short-{index}": (short, told.pace_s) for index in range(told.customers)}
        queues |= {f"long-{index}": (long, told.long_pace_s) for index in range(told.long_customers)}
        return [
            Customer(name, self._address, queue, self.undisturbed, self.accounts, self._enough, pace_s)
            for name, (queue, pace_s) in queues.items()
        ]

    async def _job_ids(self) -> set[str]:
        """What the router lists, but for jobs whose client was gone before it was told of them."""
        async with Client(self._address, patience=PATIENCE) as client:
            jobs = await client.jobs(limit=MAX_JOBS)
        return {job.job_id for job in jobs if job.job_id in self.accounts.entries or not is_abandoned(job)}

    async def _stored_events(self) -> dict[str, int]:
        """How many events NATS has of each job: a router that came back late may have added some after the end."""
        async with Exchange(self._exchange) as exchange:
            info = await exchange.jetstream.stream_info(EVENTS_STREAM, subjects_filter=events_subject("*"))
            return {subject.rpartition(".")[2]: count for subject, count in (info.state.subjects or {}).items()}

    async def _note_on(self) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(NOTE_EVERY_S)
            entries = self.accounts.entries.values()
            open_count = sum(not entry.end for entry in entries)
            wrong = dict(self.accounts.wrong) or "nothing"
            note(f"{time.monotonic() - began:.0f} s: {len(entries)} accepted, {open_count} not over, wrong: {wrong}")
