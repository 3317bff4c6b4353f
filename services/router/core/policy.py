"""The four policies: configurations of one core."""

from dataclasses import dataclass
from math import inf
from typing import Literal

from services.router.core.config import PolicyName, PoolConfig, SchedulerConfig


@dataclass(frozen=True, slots=True)
class Policy:
    """`rank`: by arrival, by estimate, or by bounded stretch. `pooled`: the configured pools, else one for all.

    `sheds`: admission by backlog. `overtakes`: a better-ranked job joins a busy denoiser that has a slot left.
    """

    rank: Literal["arrival", "estimate", "stretch"]
    pooled: bool
    sheds: bool
    overtakes: bool


POLICIES: dict[PolicyName, Policy] = {
    "fcfs": Policy(rank="arrival", pooled=False, sheds=False, overtakes=False),
    "sjf": Policy(rank="estimate", pooled=False, sheds=False, overtakes=False),
    "pools": Policy(rank="arrival", pooled=True, sheds=False, overtakes=False),
    "stretch": Policy(rank="stretch", pooled=True, sheds=True, overtakes=True),
}


def pools_in_force(config: SchedulerConfig) -> tuple[PoolConfig, ...]:
    """The configured pools, or a single one where the policy knows none."""
    return config.pools if POLICIES[config.policy].pooled else (PoolConfig(name="all", max_job_s=inf),)
