"""What each tenant uses, held against what it may use."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

from services.router.access.tokens import UNBOUNDED, Quota
from services.router.jobs import JobTable, LiveJob
from triptych.errors import Reason, TriptychError

# The shortest and the longest that a refusal tells its client to wait.
_LEAST_WAIT_S = 1.0
_MOST_WAIT_S = 60.0


@dataclass(slots=True)
class _Bucket:
    """Calls that a tenant may make at once, refilled as time goes by."""

    calls: float
    filled_s: float


class Quotas:
    """Refuses what would be beyond a tenant's quota. One bucket a tenant: tenants are named by the tokens file."""

    def __init__(
        self, quota: Callable[[str], Quota] = lambda _: UNBOUNDED, clock: Callable[[], float] = monotonic
    ) -> None:
        self._quota = quota
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}
        self._streams: Counter[str] = Counter()

    def count_call(self, tenant: str) -> None:
        """Take one call out of the tenant's bucket. Raises QUOTA_EXCEEDED, with the time until there is one."""
        quota = self._quota(tenant)
        if quota.calls_per_s is None:
            return
        now_s = self._clock()
        bucket = self._buckets.setdefault(tenant, _Bucket(quota.burst, now_s))
        bucket.calls = min(quota.burst, bucket.calls + (now_s - bucket.filled_s) * quota.calls_per_s)
        bucket.filled_s = now_s
        if bucket.calls < 1:
            why = f"{quota.calls_per_s:g} calls a second, {quota.burst} at once, are this tenant's quota"
            raise _exceeded("calls_per_s", why, (1 - bucket.calls) / quota.calls_per_s)
        bucket.calls -= 1

    @contextmanager
    def stream(self, tenant: str) -> Iterator[None]:
        """One stream of the tenant's, as long as the block lasts. Raises QUOTA_EXCEEDED."""
        most = self._quota(tenant).max_streams
        if most is not None and self._streams[tenant] >= most:
            why = f"{self._streams[tenant]} streams are open; {most} are this tenant's quota"
            raise _exceeded("max_streams", why, _LEAST_WAIT_S)
        self._streams[tenant] += 1
        try:
            yield
        finally:
            self._streams[tenant] -= 1

    def check_room(self, tenant: str, estimate_s: float, jobs: JobTable) -> None:
        """Whether one more job of so many seconds is within the quota. Raises QUOTA_EXCEEDED."""
        quota = self._quota(tenant)
        if quota.max_jobs is None and quota.max_queued_s is None:
            return
        held_s = [job.request.seconds.total_s for job in jobs.of_tenant(tenant)]
        if quota.max_jobs is not None and len(held_s) >= quota.max_jobs:
            why = f"{len(held_s)} jobs are not over; {quota.max_jobs} are this tenant's quota"
            raise _exceeded("max_jobs", why, _wait_s(held_s))
        _check_seconds(quota, held_s, estimate_s)

    def check_change(self, job: LiveJob, estimate_s: float, jobs: JobTable) -> None:
        """Whether a job may become one of so many seconds. Less work is never refused. Raises QUOTA_EXCEEDED."""
        if estimate_s > job.request.seconds.total_s:
            others_s = [each.request.seconds.total_s for each in jobs.of_tenant(job.tenant) if each is not job]
            _check_seconds(self._quota(job.tenant), others_s, estimate_s)


def _check_seconds(quota: Quota, held_s: list[float], estimate_s: float) -> None:
    if quota.max_queued_s is None or sum(held_s) + estimate_s <= quota.max_queued_s:
        return
    alone_is_too_much = estimate_s > quota.max_queued_s
    raise _exceeded(
        "max_queued_s",
        f"{sum(held_s):.1f} s of other work are not over, and this job is {estimate_s:.1f} s; "
        f"{quota.max_queued_s:g} s are this tenant's quota",
        None if alone_is_too_much else _wait_s(held_s),
    )


def _wait_s(held_s: list[float]) -> float:
    """The mean job: about when one of them is over."""
    return min(max(_LEAST_WAIT_S, sum(held_s) / max(1, len(held_s))), _MOST_WAIT_S)


def _exceeded(quota: str, why: str, wait_s: float | None) -> TriptychError:
    return TriptychError(Reason.QUOTA_EXCEEDED, f"{why}.", metadata={"quota": quota}, retry_after_s=wait_s)
