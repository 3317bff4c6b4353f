"""A record, and a recorder with what it tells."""

from services.router.access.principal import DEFAULT_TENANT as TENANT
from services.router.core.job import JobRequest, StageSeconds
from services.router.ids import new_job_id
from services.router.jobs import LiveJob
from services.router.leadership.mandate import Mandate
from services.router.store.event_log import EventStore
from services.router.store.recorder import Recorder
from services.router.store.records import SCHEMA_VERSION, JobStore
from triptych.exchange import Exchange
from triptych.v1.job_pb2 import Job, JobRecord, JobSpec


async def leads() -> None:
    """Of a router that does."""


def record(job_id: str, tenant: str = TENANT) -> JobRecord:
    return JobRecord(schema_version=SCHEMA_VERSION, job=Job(job_id=job_id, tenant=tenant), epoch=1)


class Recorded:
    """A recorder and what it tells."""

    def __init__(self, exchange: Exchange, request_id: str = "", epoch: int = 1) -> None:
        job_id = new_job_id(1.0)
        made = record(job_id)
        made.request_id = request_id
        request = JobRequest(job_id, "default", "m", "standard", StageSeconds(1, 1, 1))
        self.job = LiveJob(made, JobSpec(), request)
        self.over: list[LiveJob] = []
        self.deposed: list[str] = []
        self.events, self.store = EventStore(exchange), JobStore(exchange)
        self.mandate = mandate = Mandate(epoch, leads, self.deposed.append)
        self.recorder = Recorder(self.job, self.events, self.store, mandate, self.over.append, scarce=lambda: False)
