"""A customer: orders, watches, gives up connections, changes its mind, compares what it gets with what it should."""

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from typing import TypeVar

import grpc

from bench.trial.accounts import Accounts, Entry
from bench.trial.orders import Fate, Order
from triptych.client import Client, Media, Patience
from triptych.endings import is_terminal
from triptych.errors import Reason, TriptychError
from triptych.rpc import open_channel
from triptych.rpc.responses import responses
from triptych.v1.job_pb2 import Job, JobEvent, JobSpec, Preview
from triptych.v1.router_service_pb2 import GenerateMediaRequest
from triptych.v1.router_service_pb2_grpc import RouterServiceStub

# A "no" that is meant to be: come again later.
SHED = frozenset({Reason.OVERLOADED, Reason.QUEUE_FULL, Reason.NO_WORKER, Reason.TOO_MANY_STREAMS})
# The job went on, or ended, before it could be changed.
TOO_LATE = frozenset({Reason.JOB_ENDED, Reason.LATENTS_GONE})
PATIENCE = Patience(connect_s=120.0, reconnect_s=120.0, max_pause_s=1.0)
PAUSE_S = 0.5
GENERATE_S = 60.0

_Result = TypeVar("_Result")
Digests = tuple[str, ...]


class Customer:
    """Serves its orders one after the other, from `run` until `enough` is set; what it began it sees through.

    `address` may name several routers, separated by commas: each connection begins with the next of them. An order is
    not made until `pace_s` after the one before.
    """

    def __init__(
        self,
        name: str,
        address: str,
        orders: Iterator[Order],
        undisturbed: Mapping[str, Digests],
        accounts: Accounts,
        enough: asyncio.Event,
        pace_s: float = 0.0,
    ) -> None:
        self._name = name
        self._routers = deque(address.split(","))
        self._orders = orders
        self._undisturbed = undisturbed
        self._accounts = accounts
        self._enough = enough
        self._pace_s = pace_s
        self._count = 0

    async def run(self) -> None:
        while not self._enough.is_set():
            began = time.monotonic()
            await self.serve(next(self._orders))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._enough.wait(), max(0.0, began + self._pace_s - time.monotonic()))

    async def serve(self, order: Order) -> None:
        """One order, from its submission to the comparison of what came of it."""
        self._count += 1
        request_id = f"{self._name}-{self._count}"
        job_id = await (self._generate if order.fate is Fate.LEFT else self._submit)(order, request_id)
        if job_id is None:
            return
        entry = self._accounts.accept(job_id, order, time.time())
        await self._see_through(entry)

    async def _submit(self, order: Order, request_id: str) -> str | None:
        """The accepted job's id; None if it was never accepted and it is too late now."""
        while True:
            try:
                async with self._client() as client:
                    return (await client.submit(order.spec, request_id=request_id)).job_id
            except TriptychError as error:
                if error.reason not in SHED:
                    self._accounts.errors[f"submit: {error.reason.name}: {error.message}"] += 1
                else:
                    self._accounts.shed[error.reason.name] += 1
                    if self._enough.is_set():
                        return None
                await asyncio.sleep(min(PAUSE_S, error.retry_after_s or PAUSE_S))
            except asyncio.CancelledError:
                self._accounts.unanswered += 1
                raise

    async def _generate(self, order: Order, request_id: str) -> str | None:
        """Ask for a job and its outputs in one stream, and leave it. None if it was not accepted."""
        seen = 0
        job_id = None
        self._routers.rotate(-1)
        async with open_channel(self._routers[0]) as channel:
            call = RouterServiceStub(channel).GenerateMedia(
                GenerateMediaRequest(spec=order.spec, request_id=request_id), timeout=GENERATE_S
            )
            try:
                async with responses(call) as told:
                    async for response in told:
                        if response.HasField("accepted"):
                            job_id = response.accepted.job_id
                        seen += 1
                        if seen > order.deed_after:
                            break
            except grpc.aio.AioRpcError:
                pass  # the router died, or said no: below another is asked, under the same request id
        return job_id or await self._submit(order, request_id)

    async def _see_through(self, entry: Entry) -> None:
        log = await self._persist(lambda: self._watch(entry))
        self._accounts.close(entry, log, time.time())
        if entry.end == "succeeded":
            digests = await self._persist(lambda: self._download(entry))
            expected = self._undisturbed.get(entry.order.kind)
            if expected is not None and digests != expected:
                self._accounts.fault("wrong_bytes", entry.job_id, f"not the undisturbed {entry.order.kind}")

    async def _watch(self, entry: Entry) -> list[JobEvent]:
        """Follow it to its end over as many connections as the order says; then its log, read anew."""
        for events in entry.order.drops:
            if await self._follow(entry, events):
                break
            self._accounts.disconnects += 1
        else:
            await self._follow(entry, None)
        async with self._client() as client:
            return [event async for event in client.watch(entry.job_id)]

    async def _follow(self, entry: Entry, most: int | None) -> bool:
        """Watch over one connection for so many events, or to the end; whether the end was seen."""
        count = 0
        after = len(entry.seen)
        async with self._client() as client, aclosing(client.follow(entry.job_id, after_sequence=after)) as items:
            async for item in items:
                if isinstance(item, Preview):
                    self._accounts.preview(entry, item)
                    continue
                self._accounts.see(entry, item)
                if is_terminal(item):
                    return True
                if len(entry.seen) >= entry.order.deed_after and not entry.deed_done:
                    entry.deed_done = await self._deed(client, entry)
                count += 1
                if count == most:
                    return False
        return False

    async def _deed(self, client: Client, entry: Entry) -> bool:
        """What the customer does to the job; whether it is done with that."""
        try:
            match entry.order.fate:
                case Fate.CANCELLED:
                    await client.cancel(entry.job_id)
                case Fate.AMENDED:
                    await self._amend(client, entry)
        except TriptychError as error:
            if error.reason not in TOO_LATE | SHED:
                raise
            self._accounts.refused_deeds[error.reason.name] += 1
        return True

    async def _amend(self, client: Client, entry: Entry) -> None:
        step_count = entry.order.spec.step_count + (10 if entry.order.spec.seed % 2 else -10)
        if entry.order.spec.seed % 3:
            amended = await client.amend(entry.job_id, step_count=step_count, request_id=f"a-{entry.job_id}")
        else:
            amended = await client.amend(entry.job_id, finish_now=True, request_id=f"a-{entry.job_id}")
        if amended.job_id != entry.job_id:
            # It was finished: another job goes on from it.
            await self._see_through(self._accounts.accept(amended.job_id, Order(entry.order.spec), time.time()))

    async def _download(self, entry: Entry) -> Digests:
        async with self._client() as client:
            return await download(client, await client.job(entry.job_id))

    async def _persist(self, work: Callable[[], Awaitable[_Result]]) -> _Result:
        """Try for as long as it takes: whoever calls has a bound. Errors that a customer should not see are counted."""
        while True:
            try:
                return await work()
            except TriptychError as error:
                self._accounts.errors[f"{error.reason.name}: {error.message}"] += 1
                await asyncio.sleep(PAUSE_S)

    def _client(self) -> Client:
        self._routers.rotate(-1)
        return Client(",".join(self._routers), patience=PATIENCE)


async def download(client: Client, job: Job) -> Digests:
    """Digests of a finished job's outputs, in order."""
    media = [await client.download(job.job_id, index) for index in range(job.spec.output_count)]
    return digests_of(media)


def digests_of(media: Iterable[Media]) -> Digests:
    """One for each, in order."""
    return tuple(hashlib.blake2b(each.data, digest_size=16).hexdigest() for each in media)


async def make_undisturbed(address: str, specs: Mapping[str, JobSpec]) -> dict[str, Digests]:
    """Make each once, before anything is disturbed. Raises `TriptychError` for one that fails."""

    async def make(spec: JobSpec) -> Digests:
        async with Client(address, patience=PATIENCE) as client:
            return digests_of(await client.generate(spec))

    return dict(zip(specs, await asyncio.gather(*map(make, specs.values())), strict=True))
