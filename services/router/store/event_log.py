"""The log of every job: one subject a job in the stream EVENTS."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import nats.js.errors
from nats.aio.subscription import Subscription

from services.router.store import compare_and_set
from triptych.exchange import Exchange, ExchangeUnavailable, events_subject
from triptych.v1.job_pb2 import JobEvent

_STREAM = "EVENTS"
_BATCH = 128
_ANSWER_S = 10.0
# 204: that was all of the batch; 404: there is none.
_END_OF_BATCH = frozenset({"204", "404"})


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event and its sequence in the stream, which is not the job's own count."""

    revision: int
    event: JobEvent


class EventStore:
    """Appends and reads. Every method raises ExchangeUnavailable; `append` and `purge` DiskFull too."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def append(self, event: JobEvent, after: int) -> int:
        """Store the event if the job's last one has revision `after` (0: none yet); returns its revision.

        Raises compare_and_set.Conflict, StoreFull.
        """
        subject = events_subject(event.job_id)
        return await compare_and_set.publish(self._exchange, _STREAM, subject, event.SerializeToString(), last=after)

    async def last(self, job_id: str) -> StoredEvent | None:
        """The job's newest event, asked of the stream's leader."""
        with compare_and_set.translated(_STREAM):
            try:
                message = await self._exchange.jetstream.get_msg(_STREAM, subject=events_subject(job_id))
            except nats.js.errors.NotFoundError:
                return None
        return StoredEvent(int(message.seq or 0), JobEvent.FromString(message.data or b""))

    async def read(self, job_id: str, after_revision: int = 0) -> AsyncIterator[StoredEvent]:
        """The job's stored events past a revision, oldest first."""
        while True:
            batch = await self._read_batch(job_id, after_revision + 1)
            for stored in batch:
                yield stored
            if len(batch) < _BATCH:
                return
            after_revision = batch[-1].revision

    async def counts(self) -> dict[str, int]:
        """The jobs that have a log, and how many events each has."""
        prefix = events_subject("")
        found = await self._exchange.subjects(_STREAM, events_subject("*"))
        return {subject.removeprefix(prefix): count for subject, count in found.items()}

    async def purge(self, job_id: str) -> None:
        """Forget a job's log."""
        with compare_and_set.translated(_STREAM):
            await self._exchange.jetstream.purge_stream(_STREAM, subject=events_subject(job_id))

    async def _read_batch(self, job_id: str, from_revision: int) -> list[StoredEvent]:
        """Up to `_BATCH` events in one round trip: a batched direct get, ended by a status message."""
        client = self._exchange.control
        request = {"batch": _BATCH, "seq": from_revision, "next_by_subj": events_subject(job_id)}
        with compare_and_set.translated(_STREAM):
            inbox = client.new_inbox()
            answers = await client.subscribe(inbox)
            try:
                await client.publish(f"$JS.API.DIRECT.GET.{_STREAM}", json.dumps(request).encode(), reply=inbox)
                return await _collect(answers)
            finally:
                await answers.unsubscribe()


async def _collect(answers: Subscription) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    while True:
        message: Any = await answers.next_msg(timeout=_ANSWER_S)
        headers = message.headers or {}
        if "Nats-Sequence" in headers:
            found.append(StoredEvent(int(headers["Nats-Sequence"]), JobEvent.FromString(message.data)))
        elif headers.get("Status") in _END_OF_BATCH:
            return found
        else:
            raise ExchangeUnavailable(f"{_STREAM}: {headers.get('Status')} {headers.get('Description', '')}")
