"""Jobs that belong to GenerateMedia calls, and whether a client of theirs is there."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from services.router.jobs import JobTable, LiveJob
from triptych.endings import CLIENT_GONE

log = structlog.get_logger()


@dataclass(frozen=True, eq=False, slots=True)
class Call:
    """One GenerateMedia call as it is served. One that another router sends on again comes by the same name."""

    name: str


class Attendance:
    """Cancels a job that belongs to calls alone when the last of their clients has gone.

    At once where it is known that the client has gone; where it may be a router that has, after a grace: within
    `grace_s` the client may come back, by the request id of its call.
    """

    def __init__(self, grace_s: float, jobs: JobTable, cancel: Callable[[str, str], None]) -> None:
        self._grace_s = grace_s
        self._jobs = jobs
        self._cancel = cancel
        # The jobs of the calls that are served.
        self._present: dict[Call, str] = {}
        self._missed: dict[str, asyncio.TimerHandle] = {}

    def come(self, job: LiveJob, call: Call) -> None:
        """A call of the job's client is served."""
        self._present[call] = job.job_id
        self._stop_waiting(job.job_id)

    def keep(self, job: LiveJob) -> None:
        """Let the job go on without any client from now on."""
        job.record.streamed = False
        self._stop_waiting(job.job_id)

    def go(self, call: Call, *, at_once: bool) -> None:
        """A call is over. One that was served to its job's end changes nothing."""
        job_id = self._present.pop(call, None)
        if job_id is None or job_id in self._present.values():
            return
        if at_once:
            self._abandon(job_id)
        else:
            self.miss(job_id)

    def leave(self, name: str, job_id: str) -> None:
        """The client of a call that came through another router has gone; the call may be over already."""
        for call in [call for call, of in self._present.items() if (call.name, of) == (name, job_id)]:
            self.go(call, at_once=True)
        if job_id in self._missed:
            self._abandon(job_id)

    def miss(self, job_id: str) -> None:
        """Wait a while for a client of the job, unless it needs none."""
        if self._needs_client(job_id) and job_id not in self._missed:
            self._missed[job_id] = asyncio.get_running_loop().call_later(self._grace_s, self._give_up, job_id)

    def close(self) -> None:
        for job_id in list(self._missed):
            self._stop_waiting(job_id)

    def _stop_waiting(self, job_id: str) -> None:
        """Wait no longer for a client of the job."""
        timer = self._missed.pop(job_id, None)
        if timer is not None:
            timer.cancel()

    def _give_up(self, job_id: str) -> None:
        log.info("client_not_back", job_id=job_id)
        self._abandon(job_id)

    def _abandon(self, job_id: str) -> None:
        self._stop_waiting(job_id)
        if self._needs_client(job_id):
            self._cancel(job_id, CLIENT_GONE)

    def _needs_client(self, job_id: str) -> bool:
        job = self._jobs.get(job_id)
        return job is not None and job.record.streamed and not job.over
