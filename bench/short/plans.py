"""What each of the short jobs is, and what is to happen to it."""

import random
from dataclasses import dataclass

from triptych.v1.job_pb2 import Amendment, FinishNow

MODELS = ("flux", "sd3")
_SEEDS = 3


@dataclass(frozen=True)
class Change:
    """An amendment. `after`: so many of the job's events, 0 while it is queued. `step_count` None: finish now."""

    after: int
    step_count: int | None

    @property
    def amendment(self) -> Amendment:
        if self.step_count is None:
            return Amendment(finish_now=FinishNow())
        return Amendment(step_count=self.step_count)


@dataclass(frozen=True)
class Plan:
    """A job and its fate. `cancel_after`: so many of its events; None lets it be. `later_rank`: after its first one."""

    model: str
    seed: int
    step_count: int
    rank: float
    reproducible: bool
    fails: bool
    cancel_after: int | None
    later_rank: float | None
    change: Change | None

    @property
    def change_kind(self) -> str:
        """What its amendment asks for."""
        wanted = self.change.step_count if self.change is not None else self.step_count
        if wanted is None:
            return "finish_now"
        if wanted == self.step_count:
            return "same_steps"
        return "more_steps" if wanted > self.step_count else "fewer_steps"


def make_plans(count: int, seed: int) -> list[Plan]:
    """So many jobs, the same ones for the same seed."""
    rng = random.Random(seed)
    return [_plan(rng) for _ in range(count)]


def _plan(rng: random.Random) -> Plan:
    changes = rng.random() < 0.4
    # An amendment is on its way while a step or two of so small a model are run.
    step_count = rng.randint(4, 12) if changes else rng.randint(2, 6)
    return Plan(
        model=rng.choice(MODELS),
        seed=rng.randrange(_SEEDS),
        step_count=step_count,
        rank=float(rng.randint(0, 20)),
        reproducible=rng.random() < 0.4,
        fails=rng.random() < 0.05,
        cancel_after=rng.randint(0, 5) if rng.random() < 0.2 else None,
        later_rank=float(rng.randint(0, 20)) if rng.random() < 0.3 else None,
        change=_change(rng, step_count) if changes else None,
    )


def _change(rng: random.Random, step_count: int) -> Change:
    wanted = {
        "finish_now": None,
        "more_steps": step_count + rng.randint(1, 6),
        "fewer_steps": rng.randint(1, step_count - 1),
        "same_steps": step_count,
    }
    [kind] = rng.choices(list(wanted), weights=(6, 6, 6, 1))
    return Change(after=rng.randint(1, step_count) if rng.random() < 0.7 else 0, step_count=wanted[kind])
