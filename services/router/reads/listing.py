"""Pages of jobs, newest first."""

from collections.abc import Sequence

from services.router.access.principal import Principal
from services.router.ids import check_job_id
from services.router.jobs import JobTable
from services.router.store.records import JobKey, JobStore
from triptych.errors import TriptychError, Violation, invalid
from triptych.v1.job_pb2 import Job, JobState

_PAGE_BYTES = 3 * 1024 * 1024
# Jobs looked at for one page at most: a rare state makes short pages, not long calls.
_MAX_READ = 2000
_BATCH = 64


class Listing:
    """A page's token is the id of its last job; ids are ordered by time."""

    def __init__(self, jobs: JobTable, records: JobStore, page_size: int, max_page_size: int) -> None:
        self._jobs = jobs
        self._records = records
        self._page_size = page_size
        self._max_page_size = max_page_size

    async def page(
        self, page_size: int, page_token: str, states: Sequence["JobState.ValueType"], who: Principal
    ) -> tuple[list[Job], str]:
        """The caller's jobs (an admin's: all), of the given states or of any, past the token, and the next token.

        The token is "" on the last page; a page may be shorter than asked for without being it. Raises INVALID_FIELD.
        """
        wanted = self._check(page_size, page_token, states)
        stored = await (self._records.keys() if who.is_admin else self._records.keys(who.tenant))
        keys = [key for key in stored if not page_token or key.job_id < page_token]
        found: list[Job] = []
        size = 0
        for start in range(0, min(len(keys), _MAX_READ), _BATCH):
            batch = keys[start : start + _BATCH]
            for job in await self._read(batch):
                if states and job.state not in states:
                    continue
                found.append(job)
                size += job.ByteSize()
                if len(found) == wanted or size > _PAGE_BYTES:
                    return found, job.job_id if job.job_id != keys[-1].job_id else ""
        return found, keys[_MAX_READ - 1].job_id if len(keys) > _MAX_READ else ""

    async def _read(self, keys: list[JobKey]) -> list[Job]:
        """What memory has of these jobs is newer than what is stored."""
        read = [stored.record.job async for stored in self._records.read_all(keys)]
        return [live.job if (live := self._jobs.get(job.job_id)) is not None else job for job in read]

    def _check(self, page_size: int, page_token: str, states: Sequence["JobState.ValueType"]) -> int:
        if page_size > self._max_page_size:
            raise invalid(Violation("page_size", f"must be at most {self._max_page_size}"))
        if page_token:
            try:
                check_job_id(page_token)
            except TriptychError:
                raise invalid(Violation("page_token", "is not one that ListJobs gave")) from None
        for index, state in enumerate(states):
            if state not in JobState.values():
                raise invalid(Violation(f"states[{index}]", f"{state} is not a state"))
        return page_size or self._page_size
