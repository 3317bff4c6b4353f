"""Which denoisers are reserved for which pool."""

from collections.abc import Iterable, Sequence
from math import floor, inf

from services.router.core.config import PoolConfig
from services.router.core.worker import WorkerRecord


def reserve(pools: Sequence[PoolConfig], denoisers: Iterable[WorkerRecord]) -> None:
    """Give each denoiser that is ready to a pool: by labels, by count, the rest by shares.

    Deterministic, and a worker keeps its pool as long as the numbers allow, so that a newcomer moves few others.
    """
    free = []
    for worker in sorted(denoisers, key=lambda worker: worker.worker_id):
        labelled = [pool for pool in pools if pool.labels and pool.labels.items() <= dict(worker.info.labels).items()]
        if labelled:
            worker.pool = labelled[0].name
        elif worker.info.ready:
            free.append(worker)
    quotas = _quotas(pools, len(free))
    homeless = []
    for worker in free:
        if quotas.get(worker.pool, 0) > 0:
            quotas[worker.pool] -= 1
        else:
            homeless.append(worker)
    for worker in homeless:
        worker.pool = next((name for name, left in quotas.items() if left > 0), "")
        if worker.pool:
            quotas[worker.pool] -= 1


def _quotas(pools: Sequence[PoolConfig], worker_count: int) -> dict[str, int]:
    """How many of the unlabelled workers each pool gets; counts first, shares by largest remainder."""
    quotas: dict[str, int] = {}
    left = worker_count
    for pool in pools:
        if pool.count is not None and not pool.labels:
            quotas[pool.name] = min(pool.count, left)
            left -= quotas[pool.name]
    sharing = [pool for pool in pools if pool.count is None and not pool.labels]
    share_sum = sum(pool.share for pool in sharing)
    if share_sum in (0.0, inf):
        return quotas
    exact = {pool.name: left * pool.share / share_sum for pool in sharing}
    quotas |= {name: floor(amount) for name, amount in exact.items()}
    rest = left - sum(quotas[name] for name in exact)
    for name in sorted(exact, key=lambda name: quotas[name] - exact[name])[:rest]:
        quotas[name] += 1
    return quotas
