"""What a simulation is told: the policy, the fleet, and how its workers behave."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from services.router.core.config import Borrow, PolicyName, PoolConfig, SchedulerConfig
from services.router.core.job import Stage, WorkerInfo
from services.router.core.policy import POLICIES
from services.router.simulate.groups import speedup
from services.router.simulate.machines import CARDS_LABEL


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool for the jobs of one kind: so many workers, each a group of so many cards."""

    kind: str
    workers: int
    cards: int = 1

    def __post_init__(self) -> None:
        speedup(self.cards)
        if self.workers < 1:
            raise ValueError(f"pool {self.kind} has {self.workers} workers; it needs at least 1")


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """A policy and its bounds. Without `admission` nothing is refused for the backlog or its length.

    `level_s`, `headroom`: see `PoolConfig.max_backlog_s` and `long_headroom`.
    """

    policy: PolicyName = "stretch"
    max_queued: int | None = None
    admission: bool = False
    kappa: float = SchedulerConfig.kappa
    level_s: float = PoolConfig.max_backlog_s
    headroom: float = PoolConfig.long_headroom
    max_long_running: int | None = None
    borrow: Borrow | None = None

    @property
    def name(self) -> str:
        """As a person would ask for it."""
        words = [self.policy]
        words += [f"max-queued={self.max_queued}"] if self.max_queued is not None else []
        words += ["admission"] if self.admission else []
        words += [f"kappa={self.kappa:g}"] if self.kappa != SchedulerConfig.kappa else []
        words += [f"level={self.level_s:g}"] if self.level_s != PoolConfig.max_backlog_s else []
        words += [f"headroom={self.headroom:g}"] if self.headroom != PoolConfig.long_headroom else []
        return ":".join([words[0], ",".join(words[1:])]) if words[1:] else words[0]


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """The modelled fleet: `workers` denoisers for everything, or `pools`.

    `slots`: jobs that a denoiser may have at once. `encoders`, `decoders`: workers of those stages; 0: the denoiser does
    their work too, in line (one process for all stages). A denoiser keeps `resident_models` loaded; another takes
    `load_s`. Denoisers are lost after `mtbf_s` on average, and are back `repair_s` later.
    """

    workers: int = 4
    pools: tuple[Pool, ...] = ()
    slots: int = 3
    block_s: float = 0.15
    encoders: int = 1
    decoders: int = 1
    load_s: float = 0.0
    resident_models: int = 1
    mtbf_s: float = inf
    repair_s: float = 60.0
    checkpoint_s: float = 10.0

    def __post_init__(self) -> None:
        checks = {
            "workers": self.workers >= 1,
            "slots": self.slots >= 1,
            "block_s": 0 <= self.block_s < inf,
            "encoders": self.encoders >= 0,
            "decoders": self.decoders >= 0,
            "load_s": 0 <= self.load_s < inf,
            "resident_models": self.resident_models >= 1,
            "mtbf_s": self.mtbf_s > 0,
            "repair_s": 0 <= self.repair_s < inf,
            "checkpoint_s": 0 <= self.checkpoint_s < inf,
        }
        bad = [name for name, good in checks.items() if not good]
        if bad:
            raise ValueError(f"fleet: bad value of {', '.join(bad)}")

    @property
    def denoiser_count(self) -> int:
        return sum(pool.workers for pool in self.pools) or self.workers

    @property
    def card_count(self) -> int:
        """Cards of all denoisers."""
        return sum(pool.workers * pool.cards for pool in self.pools) or self.workers

    def worker_infos(self, models: Iterable[str]) -> Iterator[WorkerInfo]:
        """Every worker as its heartbeat would describe it. Pools are told apart by a label."""
        known = frozenset(models)
        for stage, count in ((Stage.ENCODE, self.encoders), (Stage.DECODE, self.decoders)):
            for index in range(max(1, count)):
                yield WorkerInfo(f"{stage.value}r{index}", stage, known, known, 64, ready=True)
        resident = known if self.load_s == 0.0 else frozenset(sorted(known)[: self.resident_models])
        number = 0
        for pool in self.pools or (Pool("", self.workers),):
            labels = ((CARDS_LABEL, str(pool.cards)), *([(POOL_LABEL, pool.kind)] if pool.kind else []))
            for _ in range(pool.workers):
                worker_id = f"denoiser{number:03}"
                yield WorkerInfo(worker_id, Stage.DENOISE, known, resident, self.slots, ready=True, labels=labels)
                number += 1


POOL_LABEL = "pool"


def scheduler_config(
    settings: PolicySettings, fleet: FleetSettings, models_by_kind: dict[str, tuple[str, ...]]
) -> SchedulerConfig:
    """The scheduler's own configuration. Raises `ValueError` for a pool whose jobs cannot be told from another's."""
    policy = POLICIES[settings.policy]
    queued = {} if settings.max_queued is None else {"max_queued_jobs": settings.max_queued}
    if policy.pooled and fleet.pools:
        _check_kinds(fleet.pools, models_by_kind)
        pools = tuple(_pool(settings, pool.kind, models_by_kind[pool.kind]) for pool in fleet.pools)
    else:
        pools = (_pool(settings, "all", ()),)
    return SchedulerConfig(policy=settings.policy, kappa=settings.kappa, pools=pools, **queued)


def _pool(settings: PolicySettings, name: str, models: tuple[str, ...]) -> PoolConfig:
    borrow = settings.borrow or ("preemptible" if POLICIES[settings.policy].overtakes else "none")
    return PoolConfig(
        name=name,
        models=models,
        labels={POOL_LABEL: name} if models else {},
        max_backlog_s=settings.level_s if settings.admission else inf,
        long_headroom=settings.headroom,
        max_job_s=inf,
        max_long_running=settings.max_long_running,
        borrow=borrow,
    )


def _check_kinds(pools: tuple[Pool, ...], models_by_kind: dict[str, tuple[str, ...]]) -> None:
    kinds = [pool.kind for pool in pools]
    if sorted(kinds) != sorted(models_by_kind):
        have = ", ".join(sorted(models_by_kind))
        raise ValueError(f"pools are for {', '.join(kinds)}; the jobs are {have}: give each kind one pool")
    models = [model for kind in kinds for model in models_by_kind[kind]]
    if len(set(models)) < len(models):
        raise ValueError("a model has jobs of two kinds, so that no pool knows them as its own")
