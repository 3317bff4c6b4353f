"""What an operator may set of the scheduler: its policy, its pools, its bounds."""

from dataclasses import dataclass, field
from math import inf, log
from typing import Literal

from services.router.core.job import JobRequest

PolicyName = Literal["fcfs", "sjf", "pools", "stretch"]
Borrow = Literal["none", "idle", "preemptible"]


@dataclass(frozen=True)
class PoolConfig:
    """Reserved capacity: which denoisers, for which jobs, and how much of them. Encoders and decoders serve all pools.

    Denoisers: those with all of `labels` if any are given, else `count` of the others if given, else a `share` of the
    rest. A pool that gets none that can run a job's model uses every denoiser that can.

    Jobs: the first pool that fits takes a job, by `models` and `priority_classes` (empty: any) and
    `min_estimate_s` ≤ estimate < `max_estimate_s`; the last pool takes what fits none.

    `max_backlog_s` is the unrun seconds per worker that may be due before the end of a job of up to `short_job_s`; the
    level falls log-linearly to `long_headroom` × that for a job of `long_job_s`, from which on a job is long. A tenant
    that keeps others waiting finds less. At most `max_long_running` long jobs are denoised at a time. Longer jobs than
    `max_job_s` are refused.

    `borrow`: may its jobs take denoisers of other pools? "none", "idle" (idle ones, and keep them by their rank), or
    "preemptible" (with a slot to spare; also busy ones, by their rank). A job that borrows preemptibly holds a worker's
    own jobs up for half of their own time at most, all borrowers together, and is sent away otherwise.
    """

    name: str
    share: float = 1.0
    count: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    min_estimate_s: float = 0.0
    max_estimate_s: float = inf
    priority_classes: tuple[str, ...] = ()
    max_backlog_s: float = 90.0
    long_headroom: float = 0.3
    short_job_s: float = 4.0
    long_job_s: float = 40.0
    max_job_s: float = 3600.0
    max_long_running: int | None = None
    borrow: Borrow = "none"

    def __post_init__(self) -> None:
        checks = {
            "share": self.share >= 0,
            "count": self.count is None or self.count >= 0,
            "max_estimate_s": self.min_estimate_s < self.max_estimate_s,
            "max_backlog_s": self.max_backlog_s > 0,
            "long_headroom": 0 < self.long_headroom <= 1,
            "long_job_s": 0 < self.short_job_s < self.long_job_s,
            "max_job_s": self.max_job_s > 0,
            "max_long_running": self.max_long_running is None or self.max_long_running > 0,
        }
        _refuse(f"pool {self.name!r}", checks)

    def takes(self, request: JobRequest) -> bool:
        """Whether the job belongs here."""
        return (
            (not self.models or request.model in self.models)
            and (not self.priority_classes or request.priority_class in self.priority_classes)
            and self.min_estimate_s <= request.seconds.total_s < self.max_estimate_s
        )

    def headroom(self, estimate_s: float) -> float:
        """The part of `max_backlog_s` that a job of this estimate may find ahead of it: 1 down to `long_headroom`."""
        if estimate_s <= self.short_job_s or self.long_headroom == 1.0:
            return 1.0
        if estimate_s >= self.long_job_s:
            return self.long_headroom
        way = log(estimate_s / self.short_job_s) / log(self.long_job_s / self.short_job_s)
        return 1.0 - way * (1.0 - self.long_headroom)


def default_pools() -> tuple[PoolConfig, ...]:
    """Half of the denoisers for jobs of less than 20 s, half for the others, each lent to the other."""
    return (
        PoolConfig(name="interactive", max_estimate_s=20.0, long_job_s=20.0, borrow="preemptible"),
        PoolConfig(
            name="long",
            max_backlog_s=1800.0,
            long_headroom=0.5,
            short_job_s=20.0,
            long_job_s=600.0,
            borrow="preemptible",
        ),
    )


@dataclass(frozen=True)
class SchedulerConfig:
    """The scheduler's settings.

    `kappa` is the stretch (delay over own time) that a job may be asked to bear: by then it is due to begin.
    `max_queued_jobs` counts accepted jobs that are not over. `encode_ahead_jobs` first jobs in rank of each pool, model
    and length are encoded before a denoiser is free. A task is tried `max_attempts` times if the tries count (anew from
    each checkpoint that is further than those before), and put back `max_setbacks` times if they do not; `max_reruns`
    results of a job that were lost are made again. Back-off is `backoff_s`, doubled each time up to `max_backoff_s`.
    A job that a worker's death leaves without an attempt fails after `return_grace_s`, unless the worker comes back
    meanwhile: then it had not died.

    A paused job moves to a denoiser that has been idle for `move_cost_s`: what it does again since its last checkpoint,
    and what it takes to get going there. With `rebalance` the denoisers that pools share are split anew by what each
    has to run: one at a time, at most every second `rebalance_s`.

    Where nobody runs a stage of a model, its jobs are taken, and wait, until the worker that went last has been gone
    for `absence_grace_s`.

    Tenants with work share the denoisers by `tenant_weights` (1 where not named), times the weight of a job's class.
    """

    policy: PolicyName = "stretch"
    kappa: float = 4.0
    pools: tuple[PoolConfig, ...] = field(default_factory=default_pools)
    max_queued_jobs: int = 10_000
    encode_ahead_jobs: int = 8
    move_cost_s: float = 15.0
    absence_grace_s: float = 300.0
    rebalance: bool = False
    rebalance_s: float = 30.0
    max_attempts: int = 3
    max_setbacks: int = 50
    max_reruns: int = 3
    return_grace_s: float = 10.0
    backoff_s: float = 0.5
    max_backoff_s: float = 30.0
    tenant_weights: dict[str, float] = field(default_factory=dict)
    class_weights: dict[str, float] = field(default_factory=lambda: {"batch": 0.5, "standard": 1.0, "premium": 2.0})

    def __post_init__(self) -> None:
        weights = [*self.tenant_weights.values(), *self.class_weights.values()]
        checks = {
            "kappa": self.kappa >= 0,
            "pools": len(self.pools) > 0 and len({pool.name for pool in self.pools}) == len(self.pools),
            "max_queued_jobs": self.max_queued_jobs > 0,
            "encode_ahead_jobs": self.encode_ahead_jobs > 0,
            "move_cost_s": self.move_cost_s > 0,
            "absence_grace_s": self.absence_grace_s >= 0,
            "rebalance_s": self.rebalance_s > 0,
            "max_attempts": self.max_attempts > 0,
            "max_setbacks": self.max_setbacks >= 0,
            "max_reruns": self.max_reruns >= 0,
            "return_grace_s": self.return_grace_s >= 0,
            "backoff_s": 0 < self.backoff_s <= self.max_backoff_s,
            "tenant_weights or class_weights": all(weight > 0 for weight in weights),
        }
        _refuse("scheduler", checks)

    def backoff(self, tries: int) -> float:
        """Seconds to wait after so many tries in vain; 0 for none."""
        return min(self.max_backoff_s, self.backoff_s * 2.0 ** min(tries - 1, 60)) if tries > 0 else 0.0


def _refuse(what: str, checks: dict[str, bool]) -> None:
    bad = [name for name, good in checks.items() if not good]
    if bad:
        raise ValueError(f"{what}: bad value of {', '.join(bad)}")
