"""All accepted jobs, their queues and their unrun seconds, kept in step: the one place where a task changes state."""

from collections.abc import Callable
from heapq import heappop, heappush

from services.router.core.job import Stage, Task
from services.router.core.lane import Lane, LaneKey
from services.router.core.record import JobRecord
from services.router.core.task import TRANSITIONS, TaskRecord, TaskState
from services.router.core.tenant import Tenant

# When a job leaves, those behind it come nearer to their turn, and one long job less may run.
_MOVED_UP = (Stage.ENCODE, Stage.DENOISE)


class Book:
    """Jobs by id, lanes by pool, model and length, tenants by name; these last while in use.

    `due` collects the stages of which there may be something new to start; `ready` counts their tasks in READY. `fair`:
    ranks depend on what else a tenant has.
    """

    def __init__(self, due: set[Stage], fair: bool) -> None:
        self.ready = dict.fromkeys(Stage, 0)
        self.jobs: dict[str, JobRecord] = {}
        self.lanes: dict[LaneKey, Lane] = {}
        self.tenants: dict[str, Tenant] = {}
        self._due = due
        self._fair = fair
        self._holds: list[tuple[float, str, int, Task]] = []
        self._hold_count = 0

    def add(self, job: JobRecord) -> None:
        """Take a job up, its tasks in whatever states they are in."""
        name, key = job.request.tenant, LaneKey(job.pool, job.request.model, job.is_long)
        tenant, lane = self.tenants.get(name), self.lanes.get(key)
        if tenant is None:
            tenant = self.tenants[name] = Tenant(self._fair)
        if lane is None:
            lane = self.lanes[key] = Lane(key)
        self.jobs[job.job_id] = job
        tenant.add(job)
        job.lane, job.booked = lane, None
        lane.job_count += 1
        for record in job.tasks:
            self._enter(lane, job, record)
        self.reckon(job)

    def remove(self, job: JobRecord) -> None:
        """Forget a job."""
        lane, name = job.lane, job.request.tenant
        assert lane is not None
        del self.jobs[job.job_id]
        for record in job.tasks:
            self._leave(lane, job, record)
        lane.ledger.remove(job.key)
        lane.job_count -= 1
        if not lane.job_count:
            del self.lanes[lane.key]
        tenant = self.tenants[name]
        tenant.remove(job)
        if not tenant.job_count:
            del self.tenants[name]
        job.lane = None
        self._due.update(_MOVED_UP)

    def rearrange(self, fair: bool, place: Callable[[JobRecord], None]) -> None:
        """Take every job up anew, after `place` has given it its pool and length."""
        jobs = list(self.jobs.values())
        for job in jobs:
            self.remove(job)
        self._fair = fair
        for job in jobs:
            place(job)
            self.add(job)

    def move(self, job: JobRecord, record: TaskRecord, state: TaskState) -> None:
        """Change the state of a task. Whatever it had done counts no more."""
        assert state in TRANSITIONS[record.state], f"{record.task}: {record.state} to {state} is not legal"
        lane = job.lane
        assert lane is not None
        self._leave(lane, job, record)
        record.state, record.fraction = state, 0.0
        self._enter(lane, job, record)
        self.reckon(job)

    def hold(self, job: JobRecord, record: TaskRecord, until_s: float) -> None:
        """Keep a task back until `until_s`."""
        self.move(job, record, TaskState.HELD)
        self._hold_count += 1
        heappush(self._holds, (until_s, job.job_id, self._hold_count, record.task))

    def release(self, now: float) -> list[tuple[JobRecord, TaskRecord]]:
        """Make every task whose time has come ready again; returns these."""
        released = []
        while self._holds and self._holds[0][0] <= now:
            _, job_id, _, task = heappop(self._holds)
            job = self.jobs.get(job_id)
            record = job.task(task) if job else None
            if job and record and record.state is TaskState.HELD:
                self.move(job, record, TaskState.READY)
                released.append((job, record))
        return released

    @property
    def unrun_s(self) -> float:
        """The unrun seconds of all jobs."""
        return sum([sum(lane.ledger.total()) for lane in self.lanes.values()])

    def next_release_s(self) -> float | None:
        """When the next task may be released; None if none is held."""
        return self._holds[0][0] if self._holds else None

    def reckon(self, job: JobRecord) -> None:
        """Write the job's unrun seconds anew, if they have changed."""
        unrun = job.unrun
        if unrun == job.booked:
            return
        assert job.lane is not None
        job.booked = unrun
        job.lane.ledger.put(job.key, unrun)
        self.tenants[job.request.tenant].reckon(job, unrun)

    def _enter(self, lane: Lane, job: JobRecord, record: TaskRecord) -> None:
        stage, state = record.task.stage, record.state
        if stage is Stage.DENOISE:
            self._due.add(Stage.ENCODE)  # others may have come nearer to their turn
        elif state is not TaskState.READY:
            return  # nobody waits for it
        lane.enter(job, record)
        if state is TaskState.READY:
            self.ready[stage] += 1
            self._due.add(stage)

    def _leave(self, lane: Lane, job: JobRecord, record: TaskRecord) -> None:
        stage, state = record.task.stage, record.state
        if stage is Stage.DENOISE or state is TaskState.READY:
            lane.leave(job, record)
        if state is TaskState.READY:
            self.ready[stage] -= 1
