"""Makes one job durable, in order: an event after the one before, the record after the events that it sums up."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable

import structlog
from google.protobuf.timestamp_pb2 import Timestamp

from services.router.jobs import LiveJob
from services.router.leadership.lease import Deposed
from services.router.leadership.mandate import Mandate
from services.router.store.compare_and_set import Conflict
from services.router.store.event_log import EventStore, StoredEvent
from services.router.store.records import JobStore
from services.router.store.throttle import ProgressThrottle
from triptych.endings import is_abandoned, is_terminal
from triptych.exchange import DiskFull, ExchangeError, ExchangeUnavailable, StoreFull
from triptych.v1.job_pb2 import JobEvent, Progress

log = structlog.get_logger()

_PROGRESS_INTERVAL_S = 0.25
_BUSY_EVENTS = 4
_RETRY_S = (0.1, 0.5, 2.0)
_FULL_RETRY_S = (0.5, 2.0, 10.0)
_SAVE_S = 5.0


class Recorder:
    """One job's writer. What cannot be written now is tried again, until it can or another router has written.

    `on_over` is called when the job's end is recorded. The mandate is confirmed before each write, and before a job
    counts as accepted; it is given up when another router leads. While room is `scarce`, of progress no more than the
    last step of a stage is written: the room is for what becomes of jobs.
    """

    def __init__(
        self,
        job: LiveJob,
        events: EventStore,
        records: JobStore,
        mandate: Mandate,
        on_over: Callable[[LiveJob], None],
        scarce: Callable[[], bool],
    ) -> None:
        self._job = job
        self._events = events
        self._records = records
        self._mandate = mandate
        self._on_over = on_over
        self._scarce = scarce
        self._queue: deque[JobEvent] = deque()
        self._throttle = ProgressThrottle(_PROGRESS_INTERVAL_S)
        self._accepted: asyncio.Future[None] | None = None
        self._opened = job.revision > 0
        self._closed = job.over
        # Changes of the record, and those of them that are written.
        self._changes = self._written = 0
        self._writing: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether all is written."""
        return self._writing is None

    async def accept(self, queued: JobEvent) -> None:
        """Write the first event, the record, the request's claim and the attachments, all at once.

        Raises Conflict if the request is another job's by now, StoreFull, and DiskFull: then nothing is kept. Raises
        ExchangeUnavailable when NATS does not answer: then the writing goes on, and `accepted` tells how it ends.
        """
        self.write(queued)
        await self.accepted()

    async def accepted(self) -> None:
        """Wait until the job is durable. Raises what `accept` does."""
        if self._opened:
            return
        if self._accepted is None or self._accepted.done():
            self._accepted = asyncio.get_running_loop().create_future()
            # Whoever awaits it may have gone.
            self._accepted.add_done_callback(lambda future: future.cancelled() or future.exception())
        await asyncio.shield(self._accepted)

    def write(self, event: JobEvent) -> None:
        """Queue an event. After the one that ends the job nothing is written any more."""
        if self._closed:
            return
        held = self._throttle.take()
        if held is not None:
            self._queue.append(self._stamped(JobEvent(progress=held)))
        self._queue.append(self._stamped(event))
        self._closed = is_terminal(event)
        self._changes += self._closed
        self._start()

    def progress(self, progress: Progress) -> None:
        """Queue a progress event, unless there was one just now."""
        now_s = asyncio.get_running_loop().time()
        busy = len(self._queue) >= _BUSY_EVENTS or self._scarce()
        due = self._throttle.offer(progress, now_s, busy=busy)
        if due is not None:
            self.write(JobEvent(progress=due))

    def save(self) -> None:
        """The record has changed: write it once the events so far are written."""
        self._changes += 1
        self._start()

    async def saved(self) -> None:
        """Wait until the record is written as it is now. Raises ExchangeUnavailable if it is not before long."""
        changes = self._changes
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SAVE_S):
                while self._written < changes and self._writing is not None:
                    await asyncio.wait([self._writing])
        if self._written < changes:
            raise ExchangeUnavailable(f"the record of job {self._job.job_id} is not written yet; try again")

    @property
    def ending(self) -> bool:
        """Whether the job's end is queued, or written: nothing changes that any more."""
        return self._closed

    async def settle(self) -> None:
        """Wait until all is written."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def close(self) -> None:
        """Write no more, whatever is left."""
        self._closed = True
        if self._writing is not None:
            self._writing.cancel()

    def _stamped(self, event: JobEvent) -> JobEvent:
        """With all but its sequence, which it gets when it is written."""
        event.job_id = self._job.job_id
        event.epoch = self._mandate.epoch
        event.attempt = event.attempt or self._job.job.attempt
        now = Timestamp()
        now.GetCurrentTime()
        event.time.CopyFrom(now)
        return event

    def _start(self) -> None:
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        failures = 0
        try:
            while not self._opened or self._queue or self._written < self._changes:
                try:
                    await self._step()
                    failures = 0
                except (ExchangeError, Conflict, Deposed) as error:
                    if not await self._survive(error):
                        return
                    pauses_s = _FULL_RETRY_S if isinstance(error, StoreFull) else _RETRY_S
                    await asyncio.sleep(pauses_s[min(failures, len(pauses_s) - 1)])
                    failures += 1
        except Exception:
            log.exception("job_unrecorded", job_id=self._job.job_id)
            raise
        finally:
            self._writing = None
        if self._job.over:
            self._on_over(self._job)

    async def _step(self) -> None:
        await self._mandate.confirm()
        if not self._opened:
            await self._open()
        elif self._queue:
            if await self._append(self._queue[0]):
                self._queue.popleft()
        else:
            await self._sum_up()

    async def _sum_up(self) -> None:
        changes = self._changes  # it may change again while it is written
        if self._job.over and self._job.spec.attachments:
            # First: in a full bucket it makes the room that the record needs. The log has the end already.
            await self._records.drop_spec(self._job.job_id)
        await self._write_record()
        self._written = changes

    async def _open(self) -> None:
        writes: list[Awaitable[object]] = [self._write_record(), self._claim(), self._write_spec()]
        if not self._job.log_revision:
            writes.append(self._append(self._queue[0]))
        results = await asyncio.gather(*writes, return_exceptions=True)
        for error in results:
            if isinstance(error, BaseException):
                raise error
        # Whoever leads after this finds the job in the store; whoever leads already may have looked before.
        await self._mandate.confirm()
        self._queue.popleft()
        self._opened = True
        if self._accepted is not None and not self._accepted.done():
            self._accepted.set_result(None)

    async def _survive(self, error: ExchangeError | Conflict | Deposed) -> bool:
        """Whether to try again."""
        if isinstance(error, Deposed):
            self._closed = True
            self._mandate.give_up(str(error))
            error = ExchangeUnavailable("another router leads; try again")
            if self._accepted is not None and not self._accepted.done():
                self._accepted.set_exception(error)
            return False
        if not self._opened and self._accepted is not None and not self._accepted.done():
            self._accepted.set_exception(error)
        if isinstance(error, Conflict):
            if self._opened:
                self._mandate.give_up(f"another router has written {error}")
            else:
                await self._withdraw()
            return False
        if isinstance(error, StoreFull | DiskFull):
            if not self._opened:
                await self._withdraw()
                return False
            # The room that there will be is for what became of the job.
            self._queue = deque(event for event in self._queue if not event.HasField("progress"))
        log.warning("write_failed", job_id=self._job.job_id, error=str(error))
        return True

    async def _withdraw(self) -> None:
        """Leave no trace of a job that was not accepted. Where the disk is full that has to wait for room as well."""
        self._closed = True
        self._queue.clear()
        try:
            while not await self._forget():  # noqa: ASYNC110 - a pause between two tries
                await asyncio.sleep(_RETRY_S[-1])
        except (ExchangeError, Deposed) as error:
            log.warning("job_left_behind", job_id=self._job.job_id, error=str(error))

    async def _forget(self) -> bool:
        try:
            await self._mandate.confirm()
            await self._records.forget(self._job.tenant, self._job.job_id)
            await self._events.purge(self._job.job_id)
        except DiskFull:
            return False
        return True

    async def _append(self, event: JobEvent) -> bool:
        """Whether it is written; if not, the log was ahead, and it goes behind what was there."""
        event.sequence = self._job.job.last_sequence + 1
        try:
            revision = await self._events.append(event, self._job.log_revision)
        except Conflict:
            revision = await self._own_revision(event)
            if not revision:
                await self._adopt()
                return False
        self._job.log(StoredEvent(revision, event))
        return True

    async def _own_revision(self, event: JobEvent) -> int:
        """The event's revision, if it was written although no answer came; 0 if the last one is a former leader's.

        Raises Conflict if it is anybody else's.
        """
        last = await self._events.last(event.job_id)
        if last is None:
            # The log's older part has expired: begin again where it would go on.
            return await self._events.append(event, 0)
        if last.event.epoch < self._mandate.epoch and last.revision > self._job.log_revision:
            return 0
        if last.event != event:
            raise Conflict(f"the log of job {event.job_id}")
        return last.revision

    async def _adopt(self) -> None:
        """Take up what a former leader had on its way when this one began. Nothing follows if that was the end."""
        async for stored in self._events.read(self._job.job_id, self._job.log_revision):
            if stored.event.epoch >= self._mandate.epoch:
                raise Conflict(f"the log of job {self._job.job_id}")
            log.info("event_adopted", job_id=self._job.job_id, sequence=stored.event.sequence)
            self._job.log(stored)
        if self._job.over:
            self._queue.clear()
            self._closed = True
            self._changes += 1

    async def _write_record(self) -> None:
        record = self._job.record
        record.epoch = self._mandate.epoch
        try:
            self._job.revision = await self._records.write(record, self._job.revision)
        except Conflict:
            stored = await self._records.read(self._job.tenant, self._job.job_id)
            if stored is not None and stored.record.epoch > self._mandate.epoch:
                raise
            self._job.revision = await self._records.write(record, stored.revision if stored else 0)

    async def _claim(self) -> None:
        record, tenant = self._job.record, self._job.tenant
        if not record.request_id:
            return
        try:
            await self._records.claim(tenant, record.request_id, record)
        except Conflict:
            claimed = await self._records.claimed(tenant, record.request_id)
            if claimed is None:
                raise
            if claimed.record.job.job_id == self._job.job_id:
                return
            earlier = await self._records.read(tenant, claimed.record.job.job_id)
            if earlier is not None and not is_abandoned(earlier.record.job):
                raise
            # Its router died between the claim and the job, or its client was gone.
            await self._records.claim(tenant, record.request_id, record, claimed.revision)

    async def _write_spec(self) -> None:
        if self._job.spec.attachments:
            try:
                await self._records.write_spec(self._job.job_id, self._job.spec)
            except Conflict:
                return  # written by an earlier try
