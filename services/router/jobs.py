"""The jobs in memory: those that are not over, and some that ended of late."""

import asyncio
from collections import OrderedDict, defaultdict, deque
from collections.abc import Coroutine, Iterator
from itertools import islice
from time import monotonic
from typing import Any

from google.rpc.status_pb2 import Status

from services.router.changes import Changes
from services.router.core.actions import Verdict
from services.router.core.job import JobRequest, StageSeconds
from services.router.store.event_log import StoredEvent
from services.router.store.fold import apply
from triptych.durations import seconds_of
from triptych.endings import is_over
from triptych.merge_key import merge_key
from triptych.v1.job_pb2 import Job, JobRecord, JobSpec, JobState, Latents, Preview, PriorityClass

# Events of a job that are kept in memory; a watcher that falls further behind reads the stream.
RECENT_EVENTS = 128
# Amendments of a job whose request ids are remembered.
_KEPT_AMENDMENTS = 16


class LiveJob:
    """One job: its record, its newest events, and whoever waits for more.

    `record.job` is what the durable log tells, never more. `spec` is complete, attachments included. `revision` is the
    record's in its bucket, `log_revision` the newest event's in its stream; 0: not written yet.
    """

    def __init__(self, record: JobRecord, spec: JobSpec, request: JobRequest) -> None:
        self.record = record
        self.spec = spec
        self.request = request
        self.revision = 0
        self.log_revision = 0
        self.recent: deque[StoredEvent] = deque(maxlen=RECENT_EVENTS)
        self.verdict: Verdict | None = None
        # Of the last call that failed: what the client is told if the job fails of it.
        self.error: Status | None = None
        # One change at a time.
        self.amending = asyncio.Lock()
        # The newest that is not out of date, while somebody watches. No part of the log.
        self.preview: Preview | None = None
        self._changes = Changes()

    @property
    def job_id(self) -> str:
        return self.record.job.job_id

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return self.record.job.tenant

    @property
    def job(self) -> Job:
        return self.record.job

    @property
    def over(self) -> bool:
        return is_over(self.record.job)

    def log(self, stored: StoredEvent) -> None:
        """An event is durable: the job is as it says, and watchers may have it."""
        withdrawn = stored.event.requeued.withdrawn_outputs
        self.record.surrendered.extend(output.data for output in self.record.job.outputs if output.index in withdrawn)
        apply(self.record.job, stored.event)
        if stored.event.HasField("amended"):
            self.record.amendments.append(stored.event.amended)
            del self.record.amendments[:-_KEPT_AMENDMENTS]
        if stored.event.HasField("requeued"):
            del self.record.tries[:]
            self.record.tries.extend(stored.event.requeued.tries)
        if self.preview is not None and self.record.job.state != JobState.JOB_STATE_RUNNING:
            self.preview = None
        self.log_revision = stored.revision
        self.recent.append(stored)
        self.wake()

    @property
    def durable(self) -> bool:
        """Whether it was accepted for good."""
        return self.revision > 0 and self.log_revision > 0

    def after(self, sequence: int) -> list[StoredEvent] | None:
        """The events past a sequence; None if not all of them are in memory."""
        if sequence >= self.record.job.last_sequence:
            return []
        if not self.recent or self.recent[0].event.sequence > sequence + 1:
            return None
        return list(islice(self.recent, sequence + 1 - self.recent[0].event.sequence, None))

    def wake(self) -> None:
        """Let everyone who waits look again."""
        self._changes.tell()

    def change(self) -> Coroutine[Any, Any, bool]:
        """Return what waits for the first `wake` after this call."""
        return self._changes.next()

    def snapshot(self) -> Job:
        """The job as it is now, for whoever keeps it."""
        copied = Job()
        copied.CopyFrom(self.record.job)
        return copied

    def keep_latents(self, latents: Latents) -> None:
        """Note where one output's latents lie, in place of earlier ones."""
        self.drop_latents(latents.output_index)
        self.record.latents.append(latents)

    def drop_latents(self, output_index: int) -> None:
        kept = [latents for latents in self.record.latents if latents.output_index != output_index]
        del self.record.latents[:]
        self.record.latents.extend(kept)

    def surrender_latents(self) -> None:
        """Give all latents back, those that it goes on from too, and the checkpoint."""
        record = self.record
        record.surrendered.extend(latents.data for latents in (*record.latents, *record.refined_latents))
        if record.HasField("checkpoint"):
            record.surrendered.append(record.checkpoint.data)
        del record.latents[:]
        record.ClearField("checkpoint")
        self.begin_anew()

    def begin_anew(self) -> None:
        """Go on from no other job's latents: its denoise runs all steps."""
        del self.record.refined_latents[:]
        self.record.refined_step_count = 0

    def amend(self, spec: JobSpec, request: JobRequest) -> None:
        """From now on the job is run so; its record follows when the change is durable."""
        self.spec, self.request = spec, request

    @property
    def stage_spec(self) -> JobSpec:
        """As workers get it: a job that refines another has no pictures, only what was made of them."""
        if not self.job.refines_job_id:
            return self.spec
        bare = JobSpec()
        bare.CopyFrom(self.spec)
        del bare.attachments[:]
        return bare

    @property
    def steps_vary(self) -> bool:
        """Whether its denoise runs other steps than its spec says: what it takes is no measure."""
        return bool(self.record.amendments or self.record.refined_latents)

    def latents(self, output_index: int) -> Latents | None:
        """Where one output's latents lie; None if it has none."""
        return next((each for each in self.record.latents if each.output_index == output_index), None)


def job_request(job_id: str, tenant: str, spec: JobSpec, price: StageSeconds) -> JobRequest:
    """A job as the scheduler sees it, from its complete spec."""
    deadline = spec.deadline
    return JobRequest(
        job_id=job_id,
        tenant=tenant,
        model=spec.model,
        priority_class=PriorityClass.Name(spec.priority_class).removeprefix("PRIORITY_CLASS_").lower(),
        seconds=price,
        output_count=spec.output_count,
        deadline_s=seconds_of(deadline) if spec.HasField("deadline") else None,
        merge_key=merge_key(spec),
    )


def attachment_bytes(spec: JobSpec) -> int:
    """What a spec's attachments take."""
    return sum(len(attachment.data) for attachment in spec.attachments)


class JobTable:
    """Jobs by id. Of those that are over the newest `max_ended` are kept, for `ended_s` seconds.

    A job is over when its log says so, which is when its client hears of it: what it took is free at once, though its
    record may still have to be written.
    """

    def __init__(self, max_ended: int, ended_s: float) -> None:
        self._max_ended = max_ended
        self._ended_s = ended_s
        self._live: dict[str, LiveJob] = {}
        self._by_tenant: defaultdict[str, dict[str, LiveJob]] = defaultdict(dict)
        self._attached: dict[str, int] = {}
        self._ended: OrderedDict[str, tuple[float, LiveJob]] = OrderedDict()
        self._by_request: dict[tuple[str, str], LiveJob] = {}

    def __iter__(self) -> Iterator[LiveJob]:
        """The jobs that are not over."""
        return iter(list(self._live.values()))

    def add(self, job: LiveJob) -> None:
        self._live[job.job_id] = job
        self._by_tenant[job.tenant][job.job_id] = job
        if size := attachment_bytes(job.spec):
            self._attached[job.job_id] = size
        if job.record.request_id:
            self._by_request[job.tenant, job.record.request_id] = job

    def get(self, job_id: str) -> LiveJob | None:
        found = self._live.get(job_id)
        if found is None and job_id in self._ended:
            found = self._ended[job_id][1]
        return found

    def of_tenant(self, tenant: str) -> list[LiveJob]:
        """The tenant's jobs that are not over."""
        return [job for job in self._by_tenant[tenant].values() if not job.over] if tenant in self._by_tenant else []

    @property
    def attachment_bytes(self) -> int:
        """What the attachments of jobs that are not over take."""
        return sum(size for job_id, size in self._attached.items() if not self._live[job_id].over)

    def by_request(self, tenant: str, request_id: str) -> LiveJob | None:
        """The job that a request made, if it is in memory."""
        return self._by_request.get((tenant, request_id))

    def end(self, job: LiveJob) -> None:
        """The job is over and its record says so: it may be forgotten."""
        if self._drop(job):
            job.spec = job.job.spec
            self._ended[job.job_id] = (monotonic(), job)
        self._evict()

    def remove(self, job: LiveJob) -> None:
        """The job was not accepted after all."""
        self._drop(job)
        self._forget_request(job)

    def _drop(self, job: LiveJob) -> bool:
        if self._live.pop(job.job_id, None) is None:
            return False
        del self._by_tenant[job.tenant][job.job_id]
        if not self._by_tenant[job.tenant]:
            del self._by_tenant[job.tenant]
        self._attached.pop(job.job_id, None)
        return True

    def _evict(self) -> None:
        oldest_s = monotonic() - self._ended_s
        while self._ended:
            ended_s, job = next(iter(self._ended.values()))
            if len(self._ended) <= self._max_ended and ended_s >= oldest_s:
                return
            del self._ended[job.job_id]
            self._forget_request(job)

    def _forget_request(self, job: LiveJob) -> None:
        key = (job.tenant, job.record.request_id)
        if self._by_request.get(key) is job:
            del self._by_request[key]
