"""Jobs that belong to a GenerateMedia call, and whether the call's client is there."""

import asyncio
from collections import Counter
from collections.abc import Callable

import structlog

log = structlog.get_logger()


class Attendance:
    """Cancels a job whose client has gone: at once, or, where it is a router that went, after a grace.

    Within `grace_s` the client may come back, by the request id of its call.
    """

    def __init__(self, grace_s: float, cancel: Callable[[str], None]) -> None:
        self._grace_s = grace_s
        self._cancel = cancel
        self._present: Counter[str] = Counter()
        self._missed: dict[str, asyncio.TimerHandle] = {}

    def come(self, job_id: str) -> None:
        """A call of the job's client is served."""
        self._present[job_id] += 1
        self.release(job_id)

    def go(self, job_id: str, *, at_once: bool) -> None:
        """Such a call is over. One that was served to its job's end changes nothing."""
        self._present[job_id] -= 1
        if self._present[job_id] > 0:
            return
        del self._present[job_id]
        if at_once:
            self._cancel(job_id)
        else:
            self.miss(job_id)

    def miss(self, job_id: str) -> None:
        """The job's client was lost with a router."""
        if job_id not in self._missed:
            self._missed[job_id] = asyncio.get_running_loop().call_later(self._grace_s, self._give_up, job_id)

    def release(self, job_id: str) -> None:
        """The job is waited for no more."""
        timer = self._missed.pop(job_id, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        for job_id in list(self._missed):
            self.release(job_id)

    def _give_up(self, job_id: str) -> None:
        del self._missed[job_id]
        log.info("client_not_back", job_id=job_id)
        self._cancel(job_id)
