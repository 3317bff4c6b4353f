"""Moves of paused jobs, by checkpoint, to denoisers that nobody else needs."""

from math import inf

from services.router.core.actions import Action, StopTask
from services.router.core.book import Book
from services.router.core.config import SchedulerConfig
from services.router.core.dispatch import Dispatch
from services.router.core.fleet import Fleet
from services.router.core.policy import POLICIES
from services.router.core.record import JobRecord
from services.router.core.task import TaskRecord
from services.router.core.worker import WorkerRecord


class Moves:
    """A job paused behind better-ranked ones may go on where a denoiser has been idle for longer than the move costs.

    The best-ranked goes first. It stays if what is ahead of it is done sooner than that.
    """

    def __init__(self, config: SchedulerConfig, book: Book, fleet: Fleet, dispatch: Dispatch) -> None:
        self._cost_s = config.move_cost_s
        self._allowed = POLICIES[config.policy].overtakes
        self._book = book
        self._fleet = fleet
        self._dispatch = dispatch
        self._due_s = inf

    def next_due_s(self) -> float | None:
        """When an idle denoiser will have been so for long enough; None if no paused job waits for one."""
        return self._due_s if self._due_s < inf else None

    def run(self) -> list[Action]:
        """Move what can be moved now, after everything that waits has had its chance."""
        fleet = self._fleet
        if not fleet.stirred and fleet.now < self._due_s:
            return []
        fleet.stirred = False
        self._due_s = inf
        if not self._allowed or not fleet.crowded or not fleet.any_idle:
            return []
        moved: list[Action] = []
        for job, record, worker in self._paused():
            target = self._target(job)
            if target is not None:
                moved.append(StopTask(record.task, worker.worker_id, reason="moved"))
                moved.append(self._dispatch.move(job, record, target))
        return moved

    def _paused(self) -> list[tuple[JobRecord, TaskRecord, WorkerRecord]]:
        """Jobs that wait long for the device of their worker, by rank."""
        found = []
        for worker in self._fleet.crowded.values():
            ahead_s = 0.0
            for record in sorted(worker.running.values(), key=lambda record: record.order):
                job = self._book.jobs[record.task.job_id]
                if ahead_s > self._cost_s and job.encoded and not job.all_covered:
                    found.append((job.key, job, record, worker))
                ahead_s += worker.pace.ratio * record.unrun_s
        return [(job, record, worker) for _, job, record, worker in sorted(found, key=lambda each: each[0])]

    def _target(self, job: JobRecord) -> WorkerRecord | None:
        """The idle denoiser that has been so for longest, if that is long enough."""
        best: tuple[float, str] | None = None
        for cohort in self._dispatch.idle_hosts(job):
            for _, worker_id in cohort.idle:
                since = (self._fleet.workers[worker_id].idle_since_s, worker_id)
                best = since if best is None else min(best, since)
        if best is None:
            return None
        if best[0] + self._cost_s > self._fleet.now:
            self._due_s = min(self._due_s, best[0] + self._cost_s)
            return None
        return self._fleet.workers[best[1]]
