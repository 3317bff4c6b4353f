"""The records of all jobs, and which request each came from, in the KV bucket "jobs"."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import NamedTuple

import nats.js.errors
from nats.js.kv import KeyValue

from services.router.store import compare_and_set
from triptych.exchange import Exchange, ExchangeUnavailable
from triptych.v1.job_pb2 import JobRecord, JobSpec

SCHEMA_VERSION = 1
_STREAM = "KV_jobs"
_SUBJECTS = "$KV.jobs."
_RECORD_SUBJECTS = f"{_SUBJECTS}job."
_ANY = "*"
_READ_TOGETHER = 16


class JobKey(NamedTuple):
    """Whose job it is, and which; in the order of their ids, which is that of time."""

    job_id: str
    tenant: str


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record and the revision that its next write must name."""

    revision: int
    record: JobRecord


class JobStore:
    """The records, and two things beside them: complete specs, and claims.

    Keys: `job.<tenant>.<id>` (the record), `spec.<id>` (the spec with its attachments, if it has any),
    `request.<tenant>.<id>` (which job a request made). Who does not name a job's tenant does not find it: another
    tenant's job is looked for, and missed, exactly as one that never was. `estimates` is the estimator's (see
    `Estimates`). Every method raises ExchangeUnavailable; every write compare_and_set.Conflict, StoreFull and DiskFull
    too.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._opened: KeyValue | None = None

    async def write(self, record: JobRecord, last: int) -> int:
        """Store the record if its last revision is `last` (0: none yet); returns the new revision."""
        return await self._write(f"job.{record.job.tenant}.{record.job.job_id}", record.SerializeToString(), last)

    async def read(self, tenant: str, job_id: str) -> StoredRecord | None:
        """A job's record, None if the tenant has no such job. Raises ExchangeUnavailable for an unknown version."""
        entry = await self._read(f"job.{tenant}.{job_id}")
        return _parse(entry) if entry else None

    async def forget(self, tenant: str, job_id: str) -> None:
        """Remove all of a job that nobody was told of."""
        await asyncio.gather(self._purge(f"job.{tenant}.{job_id}"), self.drop_spec(job_id))

    async def prune(self, record: JobRecord) -> None:
        """Leave nothing of a job that is over, nor of the request that made it."""
        tenant, job_id = record.job.tenant, record.job.job_id
        if record.request_id:
            claimed = await self.claimed(tenant, record.request_id)
            if claimed is not None and claimed.record.job.job_id == job_id:
                await self._purge(f"request.{tenant}.{record.request_id}")
        if record.job.spec.attachments:
            await self.drop_spec(job_id)
        await self._purge(f"job.{tenant}.{job_id}")

    async def write_spec(self, job_id: str, spec: JobSpec) -> None:
        """Store the complete spec of a job that has attachments."""
        await self._write(f"spec.{job_id}", spec.SerializeToString(), 0)

    async def read_spec(self, job_id: str) -> JobSpec | None:
        entry = await self._read(f"spec.{job_id}")
        return JobSpec.FromString(entry.value or b"") if entry else None

    async def drop_spec(self, job_id: str) -> None:
        """The attachments are needed no more."""
        await self._purge(f"spec.{job_id}")

    async def claim(self, tenant: str, request_id: str, record: JobRecord, last: int = 0) -> None:
        """Tie a request id to a job. Raises compare_and_set.Conflict if it is tied to one already."""
        claim = JobRecord(schema_version=SCHEMA_VERSION, request_id=request_id, request_digest=record.request_digest)
        claim.job.job_id = record.job.job_id
        await self._write(f"request.{tenant}.{request_id}", claim.SerializeToString(), last)

    async def claimed(self, tenant: str, request_id: str) -> StoredRecord | None:
        """Which job (its id only) and which payload a request id is tied to."""
        entry = await self._read(f"request.{tenant}.{request_id}")
        return _parse(entry) if entry else None

    async def keys(self, tenant: str = _ANY, job_id: str = _ANY) -> list[JobKey]:
        """The jobs that are stored, of all tenants or of one, newest first."""
        found = await self._exchange.subjects(_STREAM, f"{_RECORD_SUBJECTS}{tenant}.{job_id}")
        return sorted(map(_key, found), reverse=True)

    async def read_all(self, keys: list[JobKey]) -> AsyncIterator[StoredRecord]:
        """The records of these jobs, in their order; those that are gone are left out."""
        for start in range(0, len(keys), _READ_TOGETHER):
            together = keys[start : start + _READ_TOGETHER]
            for stored in await asyncio.gather(*(self.read(key.tenant, key.job_id) for key in together)):
                if stored is not None:
                    yield stored

    async def _bucket(self) -> KeyValue:
        if self._opened is None:
            self._opened = await self._exchange.bucket("jobs")
        return self._opened

    async def _write(self, key: str, value: bytes, last: int) -> int:
        return await compare_and_set.put(self._exchange, "jobs", await self._bucket(), key, value, last=last)

    async def _read(self, key: str) -> KeyValue.Entry | None:
        bucket = await self._bucket()
        with compare_and_set.translated("jobs"):
            try:
                return await bucket.get(key)
            except nats.js.errors.KeyNotFoundError:
                return None

    async def _purge(self, key: str) -> None:
        """Leave not even that there was something: a marker of that would need room in a full bucket."""
        with compare_and_set.translated("jobs"):
            await self._exchange.jetstream.purge_stream(_STREAM, subject=f"{_SUBJECTS}{key}")


def _key(subject: str) -> JobKey:
    tenant, _, job_id = subject.removeprefix(_RECORD_SUBJECTS).partition(".")
    return JobKey(job_id, tenant)


def _parse(entry: KeyValue.Entry) -> StoredRecord:
    record = JobRecord.FromString(entry.value or b"")
    if record.schema_version != SCHEMA_VERSION:
        raise ExchangeUnavailable(
            f"{entry.key} is stored in version {record.schema_version}; this router knows {SCHEMA_VERSION}"
        )
    return StoredRecord(int(entry.revision or 0), record)
