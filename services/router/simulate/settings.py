"""What a simulation is told: the policy, the fleet, and how its workers behave."""

import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from math import inf
from pathlib import Path
from typing import Any

from services.router.core.config import POLICIES, Borrow, PolicyName, PoolConfig, SchedulerConfig
from services.router.core.job import Stage, WorkerInfo
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


def parse_pool(text: str) -> Pool:
    """`KIND=WORKERS[xCARDS]`. Raises `ValueError`."""
    kind, _, size = text.partition("=")
    workers, _, cards = size.partition("x")
    if not (kind and workers.isdigit() and (cards or "1").isdigit()):
        raise ValueError(f"pool {text!r} is not KIND=WORKERS or KIND=WORKERSxCARDS, as in video=2x4")
    return Pool(kind, int(workers), int(cards or 1))


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """A policy, and what differs from the configuration that it runs under: by default that of a router told nothing.

    Without admission nothing is refused for the work ahead. With `no_tenants` each job counts as a tenant of its own,
    so that nobody is held to a share. `max_running` and `borrow` are those of every pool.
    """

    policy: PolicyName = "stretch"
    max_queued: int | None = None
    no_admission: bool = False
    no_tenants: bool = False
    kappa: float | None = None
    slack: float | None = None
    max_running: int | None = None
    borrow: Borrow | None = None

    @property
    def name(self) -> str:
        """The policy, and what differs from the configuration, as it is asked for on the command line."""
        changes = [
            key if isinstance(value, bool) else f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
            for key, (field_name, _) in POLICY_KEYS.items()
            if (value := getattr(self, field_name)) != _DEFAULTS[field_name]
        ]
        return f"{self.policy}:{','.join(changes)}" if changes else self.policy


def parse_policy(text: str, defaults: PolicySettings) -> PolicySettings:
    """`NAME[:KEY[=VALUE],…]`, as in "fcfs:max-queued=100"; what it does not say is as in `defaults`.

    Raises `ValueError`.
    """
    name, _, rest = text.partition(":")
    if name not in POLICIES:
        raise ValueError(f"no policy is called {name!r}; known: {', '.join(POLICIES)}")
    changes: dict[str, Any] = {}
    for part in rest.split(",") if rest else ():
        key, _, value = part.partition("=")
        if key not in POLICY_KEYS:
            raise ValueError(f"policy {text!r}: unknown {key!r}; known: {', '.join(POLICY_KEYS)}")
        field_name, kind = POLICY_KEYS[key]
        if kind is bool and value:
            raise ValueError(f"policy {text!r}: {key} takes no value")
        try:
            changes[field_name] = True if kind is bool else kind(value)
        except ValueError as error:
            raise ValueError(f"policy {text!r}: {value!r} is no value for {key}") from error
    return replace(defaults, policy=name, **changes)


POLICY_KEYS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "max-queued": ("max_queued", int),
    "no-admission": ("no_admission", bool),
    "no-tenants": ("no_tenants", bool),
    "kappa": ("kappa", float),
    "slack": ("slack", float),
    "max-running": ("max_running", int),
    "borrow": ("borrow", str),
}
"""What may follow a policy's name, the field that it sets, and what it is."""

_DEFAULTS = {field.name: field.default for field in fields(PolicySettings)}


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """The modelled fleet: `workers` denoisers for everything, each a group of `cards` cards, or `pools`.

    `slots`: jobs that a denoiser may have at once. `encoders`, `decoders`: workers of those stages; 0: the denoiser
    does their work too, in line (one process for all stages). A denoiser keeps `resident_models` loaded; another takes
    `load_s`. Denoisers are lost after `mtbf_s` on average, and are back `repair_s` later.
    """

    workers: int = 4
    cards: int = 1
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
        speedup(self.cards)
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
        return sum(pool.workers * pool.cards for pool in self.pools) or self.workers * self.cards

    @property
    def sized_pools(self) -> tuple[Pool, ...]:
        """The pools; a nameless one of all workers if there are none."""
        return self.pools or (Pool("", self.workers, self.cards),)

    @property
    def words(self) -> str:
        """As a person would say it: "1 worker for image, 3 workers of 4 cards for video"."""
        return ", ".join(_words(pool) for pool in self.sized_pools)

    def worker_infos(self, models: Iterable[str]) -> Iterator[WorkerInfo]:
        """Every worker as its heartbeat would describe it. Pools are told apart by a label."""
        known = frozenset(models)
        for stage, count in ((Stage.ENCODE, self.encoders), (Stage.DECODE, self.decoders)):
            for index in range(max(1, count)):
                yield WorkerInfo(f"{stage.value}r{index}", stage, known, known, 64, ready=True)
        resident = known if self.load_s == 0.0 else frozenset(sorted(known)[: self.resident_models])
        number = 0
        for pool in self.sized_pools:
            labels = ((CARDS_LABEL, str(pool.cards)), *([(POOL_LABEL, pool.kind)] if pool.kind else []))
            for _ in range(pool.workers):
                worker_id = f"denoiser{number:03}"
                yield WorkerInfo(worker_id, Stage.DENOISE, known, resident, self.slots, ready=True, labels=labels)
                number += 1


POOL_LABEL = "pool"


def scheduler_config(
    settings: PolicySettings,
    fleet: FleetSettings,
    models_by_kind: dict[str, tuple[str, ...]],
    base: SchedulerConfig | None = None,
) -> SchedulerConfig:
    """Return the scheduler's own configuration: `base`, by default the shipped one, with the settings' changes.

    Pools of the fleet take the place of the configured ones, each for the jobs of its kind. Raises `ValueError` for a
    pool whose jobs cannot be told from another's.
    """
    base = base or SchedulerConfig()
    pools = base.pools
    if POLICIES[settings.policy].pooled and fleet.pools:
        _check_kinds(fleet.pools, models_by_kind)
        borrow: Borrow = "preemptible" if POLICIES[settings.policy].preempts else "none"
        pools = tuple(
            PoolConfig(name=pool.kind, models=models_by_kind[pool.kind], labels={POOL_LABEL: pool.kind}, borrow=borrow)
            for pool in fleet.pools
        )
    changes = {
        "kappa": settings.kappa,
        "slack": settings.slack,
        "max_queued_jobs": settings.max_queued,
    }
    level_s = inf if settings.no_admission else None
    of_pools = {"max_running": settings.max_running, "borrow": settings.borrow, "max_backlog_s": level_s}
    return replace(
        base,
        policy=settings.policy,
        pools=tuple(replace(pool, **_given(of_pools)) for pool in pools),
        **_given(changes),
    )


def read_config(path: Path) -> SchedulerConfig:
    """Return the `[scheduler]` of a router's TOML file; what it does not say is as shipped.

    Raises `ValueError` that names the file, and the key that is unknown or has a bad value.
    """
    try:
        table = tomllib.loads(path.read_text()).get("scheduler", {})
        pools = tuple(PoolConfig(**_known(PoolConfig, pool)) for pool in table.get("pools", ()))
        settings = _known(SchedulerConfig, table)
        return SchedulerConfig(**{**settings, "pools": pools} if pools else settings)
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"cannot use {path}: {error}") from error


def _known(kind: type[Any], table: dict[str, Any]) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}
    unknown = sorted(table.keys() - names)
    if unknown:
        raise ValueError(f"unknown {', '.join(unknown)}; known: {', '.join(sorted(names))}")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}


def _given(changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in changes.items() if value is not None}


def _check_kinds(pools: tuple[Pool, ...], models_by_kind: dict[str, tuple[str, ...]]) -> None:
    kinds = [pool.kind for pool in pools]
    if sorted(kinds) != sorted(models_by_kind):
        have = ", ".join(sorted(models_by_kind))
        raise ValueError(f"pools are for {', '.join(kinds)}; the jobs are {have}: give each kind one pool")
    models = [model for kind in kinds for model in models_by_kind[kind]]
    if len(set(models)) < len(models):
        raise ValueError("a model has jobs of two kinds, so that no pool knows them as its own")


def _words(pool: Pool) -> str:
    workers = f"{pool.workers} worker{'s' if pool.workers > 1 else ''}"
    size = f" of {pool.cards} cards" if pool.cards > 1 else ""
    return workers + size + (f" for {pool.kind}" if pool.kind else "")
