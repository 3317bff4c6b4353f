"""Settings of the scheduler: its policy, its pools, its bounds."""

from dataclasses import dataclass, field
from math import inf
from typing import Literal

from services.router.core.job import JobRequest

PolicyName = Literal["fcfs", "sjf", "pools", "stretch"]
Borrow = Literal["none", "idle", "preemptible"]


@dataclass(frozen=True, slots=True)
class Policy:
    """`rank`: by arrival, by estimate, or by bounded stretch. `pooled`: the configured pools, else one for all.

    `sheds`: admission by backlog. `preempts`: a better-ranked job joins a busy denoiser that has a slot left.
    """

    rank: Literal["arrival", "estimate", "stretch"]
    pooled: bool
    sheds: bool
    preempts: bool


POLICIES: dict[PolicyName, Policy] = {
    "fcfs": Policy(rank="arrival", pooled=False, sheds=False, preempts=False),
    "sjf": Policy(rank="estimate", pooled=False, sheds=False, preempts=False),
    "pools": Policy(rank="arrival", pooled=True, sheds=False, preempts=False),
    "stretch": Policy(rank="stretch", pooled=True, sheds=True, preempts=True),
}


@dataclass(frozen=True)
class PoolConfig:
    """Reserved capacity: which denoisers, for which jobs, and how much of them. Encoders and decoders serve all pools.

    Denoisers: those with all of `labels` if any are given, else `count` of the others if given, else a `share` of the
    rest. A pool that gets none that can run a job's model uses every denoiser that can.

    Jobs: the first pool that fits takes a job, by `models` and `priority_classes` (empty: any) and
    `min_estimate_s` ≤ estimate < `max_estimate_s`; the last pool takes what fits none.

    Admission scales with the job itself (see `admission`). Limits in seconds are for those who want one: with
    `max_backlog_s` a job is refused that finds more than these seconds of work per worker ahead, whatever its length;
    with `max_job_s` a longer one is. At most `max_running` jobs of the pool are denoised at a time.

    `borrow` says whether its jobs may use denoisers of other pools: "none"; "idle" (idle ones, which their own pool
    takes back when it has work); or "preemptible" (idle and busy ones, by rank, as if they were its own).
    """

    name: str
    share: float = 1.0
    count: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    min_estimate_s: float = 0.0
    max_estimate_s: float = inf
    priority_classes: tuple[str, ...] = ()
    max_backlog_s: float | None = None
    max_job_s: float = inf
    max_running: int | None = None
    borrow: Borrow = "none"

    def __post_init__(self) -> None:
        checks = {
            "share": self.share >= 0,
            "count": self.count is None or self.count >= 0,
            "max_estimate_s": self.min_estimate_s < self.max_estimate_s,
            "max_backlog_s": self.max_backlog_s is None or self.max_backlog_s > 0,
            "max_job_s": self.max_job_s > 0,
            "max_running": self.max_running is None or self.max_running > 0,
        }
        _refuse(f"pool {self.name!r}", checks)

    def takes(self, request: JobRequest) -> bool:
        """Return whether the job belongs here."""
        return (
            (not self.models or request.model in self.models)
            and (not self.priority_classes or request.priority_class in self.priority_classes)
            and self.min_estimate_s <= request.seconds.total_s < self.max_estimate_s
        )


def default_pools() -> tuple[PoolConfig, ...]:
    """Return the pools of a router that is told nothing: jobs under 20 s, and the others, each lent to the other."""
    return (
        PoolConfig(name="interactive", max_estimate_s=20.0, borrow="preemptible"),
        PoolConfig(name="long", borrow="preemptible"),
    )


@dataclass(frozen=True)
class SchedulerConfig:
    """The scheduler's settings.

    `kappa` is the stretch (delay over own time) that a job may be asked to bear: it is due to begin by then, and to end
    (κ + 1) times its own time after its arrival. `slack` is the part of that time which work ahead of a job may fill
    when it is admitted. The fleet is overloaded when jobs up to some length, of the last `overload_window` arrivals,
    fill more than `overload_load` of its time; longer jobs then find less room. `crowding` is the part of the time that
    a tenant's own jobs cost the other tenants which counts as work ahead of its next one.

    `max_queued_jobs` counts accepted jobs that are not over. `encode_ahead_jobs` first jobs by rank of each pool and
    model are encoded before a denoiser is free. A task is tried `max_attempts` times if the tries count (anew from each
    checkpoint that is further than those before), and put back `max_setbacks` times if they do not; `max_reruns`
    results of a job that were lost are made again. Back-off is `backoff_s`, doubled each time up to `max_backoff_s`.
    A job that a worker's death leaves without an attempt fails after `return_grace_s`, unless the worker comes back
    meanwhile: then it had not died.

    A paused job moves to an idle denoiser if it would wait longer than `move_cost_s` where it is: about what it repeats
    since its last checkpoint, and what it takes to get going there.

    Where no worker runs a stage of a model, its jobs are accepted, and wait, until the worker that left last has been
    gone for `absence_grace_s`. Where the workers cannot serve the model, jobs that wait for it fail after that time.

    Tenants with work share the denoisers by `tenant_weights` (1 where not named), times the weight of a job's class.
    """

    policy: PolicyName = "stretch"
    kappa: float = 4.0
    slack: float = 0.5
    overload_window: int = 64
    overload_load: float = 0.5
    crowding: float = 0.08
    pools: tuple[PoolConfig, ...] = field(default_factory=default_pools)
    max_queued_jobs: int = 20_000
    encode_ahead_jobs: int = 8
    move_cost_s: float = 15.0
    absence_grace_s: float = 300.0
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
            "slack": 0 < self.slack <= 1,
            "overload_window": self.overload_window > 0,
            "overload_load": self.overload_load > 0,
            "crowding": self.crowding >= 0,
            "pools": len(self.pools) > 0 and len({pool.name for pool in self.pools}) == len(self.pools),
            "max_queued_jobs": self.max_queued_jobs > 0,
            "encode_ahead_jobs": self.encode_ahead_jobs > 0,
            "move_cost_s": self.move_cost_s > 0,
            "absence_grace_s": self.absence_grace_s >= 0,
            "max_attempts": self.max_attempts > 0,
            "max_setbacks": self.max_setbacks >= 0,
            "max_reruns": self.max_reruns >= 0,
            "return_grace_s": self.return_grace_s >= 0,
            "backoff_s": 0 < self.backoff_s <= self.max_backoff_s,
            "tenant_weights or class_weights": all(weight > 0 for weight in weights),
        }
        _refuse("scheduler", checks)

    @property
    def rules(self) -> Policy:
        """What the policy stands for."""
        return POLICIES[self.policy]

    @property
    def pools_in_force(self) -> tuple[PoolConfig, ...]:
        """The configured pools, or a single one where the policy knows none."""
        return self.pools if self.rules.pooled else (PoolConfig(name="all"),)

    def pool_of(self, request: JobRequest, name: str = "") -> PoolConfig:
        """Return the pool of that name, else the first that takes the job, else the last."""
        pools = self.pools_in_force
        for pool in pools:
            if pool.name == name:
                return pool
        return next((pool for pool in pools if pool.takes(request)), pools[-1])

    def backoff(self, tries: int) -> float:
        """Return the seconds to wait after this many tries in vain; 0 for none."""
        return min(self.max_backoff_s, self.backoff_s * 2.0 ** min(tries - 1, 60)) if tries > 0 else 0.0


def _refuse(what: str, checks: dict[str, bool]) -> None:
    bad = [name for name, good in checks.items() if not good]
    if bad:
        raise ValueError(f"{what}: bad value of {', '.join(bad)}")
