"""Which denoisers are reserved for which pool."""

from collections.abc import Iterable, Mapping, Sequence
from math import floor, inf

from services.router.core.config import PoolConfig
from services.router.core.worker import WorkerRecord


def reserve(
    pools: Sequence[PoolConfig], denoisers: Iterable[WorkerRecord], shares: Mapping[str, float] | None = None
) -> None:
    """Give each denoiser that is ready to a pool: by labels, by count, the rest by shares.

    `shares` are by pool, and stand for the configured ones where given.

    Deterministic, and a worker keeps its pool as long as the numbers allow, so that a newcomer moves few others.
    """
    free = []
    for worker in sorted(denoisers, key=lambda worker: worker.worker_id):
        labelled = [pool for pool in pools if pool.labels and pool.labels.items() <= dict(worker.info.labels).items()]
        if labelled:
            worker.pool = labelled[0].name
        elif worker.info.ready:
            free.append(worker)
    left = quotas(pools, len(free), shares)
    homeless = []
    for worker in free:
        if left.get(worker.pool, 0) > 0:
            left[worker.pool] -= 1
        else:
            homeless.append(worker)
    for worker in homeless:
        worker.pool = next((name for name, count in left.items() if count > 0), "")
        if worker.pool:
            left[worker.pool] -= 1


def quotas(pools: Sequence[PoolConfig], worker_count: int, shares: Mapping[str, float] | None = None) -> dict[str, int]:
    """How many of so many workers without labels each pool gets; counts first, shares by largest remainder."""
    counts: dict[str, int] = {}
    left = worker_count
    for pool in pools:
        if pool.count is not None and not pool.labels:
            counts[pool.name] = min(pool.count, left)
            left -= counts[pool.name]
    sharing = [pool for pool in pools if pool.count is None and not pool.labels]
    parts = {pool.name: (shares or {}).get(pool.name, pool.share) for pool in sharing}
    share_sum = sum(parts.values())
    if share_sum in (0.0, inf):
        return counts
    exact = {name: left * part / share_sum for name, part in parts.items()}
    counts |= {name: floor(amount) for name, amount in exact.items()}
    rest = left - sum(counts[name] for name in exact)
    for name in sorted(exact, key=lambda name: counts[name] - exact[name])[:rest]:
        counts[name] += 1
    return counts
