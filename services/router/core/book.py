"""All accepted jobs, their queues and their unrun seconds, kept in step: the one place where a task changes state."""

from heapq import heappop, heappush

from services.router.core.job import Task
from services.router.core.lane import Lane, LaneKey
from services.router.core.ledger import Ledger
from services.router.core.peers import PeerKey, Peers, peer_key
from services.router.core.record import JobRecord
from services.router.core.task import TRANSITIONS, TaskRecord, TaskState


class Book:
    """Jobs by id, lanes by pool, model and length, a ledger a tenant, and peers; these last while in use."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobRecord] = {}
        self.lanes: dict[LaneKey, Lane] = {}
        self.tenants: dict[str, Ledger] = {}
        self.peers: dict[PeerKey, Peers] = {}
        self._holds: list[tuple[float, str, int, Task]] = []
        self._hold_count = 0

    def lane(self, job: JobRecord) -> Lane:
        return self.lanes[LaneKey(job.pool, job.request.model, job.is_long)]

    def add(self, job: JobRecord) -> None:
        """Take a job up, its tasks in whatever states they are in."""
        key = LaneKey(job.pool, job.request.model, job.is_long)
        lane = self.lanes.setdefault(key, Lane(key))
        lane.job_count += 1
        self.jobs[job.job_id] = job
        self.peers.setdefault(peer_key(job.request), Peers()).add(job.request.seconds.total_s, job.rank)
        for record in job.tasks:
            lane.enter(job, record)
        self.reckon(job)

    def remove(self, job: JobRecord) -> None:
        """Forget a job."""
        lane, tenant = self.lane(job), job.request.tenant
        for record in job.tasks:
            lane.leave(job, record)
        lane.ledger.remove(job.key)
        lane.job_count -= 1
        if not lane.job_count:
            del self.lanes[lane.key]
        self.tenants[tenant].remove(job.key)
        if not self.tenants[tenant]:
            del self.tenants[tenant]
        peers = self.peers[peer_key(job.request)]
        peers.remove(job.request.seconds.total_s, job.rank)
        if not peers:
            del self.peers[peer_key(job.request)]
        del self.jobs[job.job_id]

    def move(self, job: JobRecord, record: TaskRecord, state: TaskState) -> None:
        """Change the state of a task. Whatever it had done counts no more."""
        assert state in TRANSITIONS[record.state], f"{record.task}: {record.state} to {state} is not legal"
        lane = self.lane(job)
        lane.leave(job, record)
        record.state, record.fraction = state, 0.0
        lane.enter(job, record)
        self.reckon(job)

    def hold(self, job: JobRecord, record: TaskRecord, until_s: float) -> None:
        """Keep a task back until `until_s`."""
        self.move(job, record, TaskState.HELD)
        self._hold_count += 1
        heappush(self._holds, (until_s, job.job_id, self._hold_count, record.task))

    def release(self, now: float) -> None:
        """Make every task whose time has come ready again."""
        while self._holds and self._holds[0][0] <= now:
            _, job_id, _, task = heappop(self._holds)
            job = self.jobs.get(job_id)
            record = job.task(task) if job else None
            if job and record and record.state is TaskState.HELD:
                self.move(job, record, TaskState.READY)

    def next_release_s(self) -> float | None:
        """When the next task may be released; None if none is held."""
        return self._holds[0][0] if self._holds else None

    def reckon(self, job: JobRecord) -> None:
        """Write the job's unrun seconds anew."""
        unrun = job.unrun
        self.lane(job).ledger.put(job.key, unrun)
        self.tenants.setdefault(job.request.tenant, Ledger()).put(job.key, unrun)
