"""Which process is struck how, and when: a plan drawn from a seed. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class FaultKind(StrEnum):
    """What happens to a process."""

    # SIGKILL; it starts again by itself.
    KILL = "kill"
    # SIGSTOP, and SIGCONT before anybody can have missed it for long.
    FREEZE = "freeze"
    # SIGSTOP for longer than heartbeats and leases bear, then SIGCONT: it wakes in a world that went on without it.
    FREEZE_LONG = "freeze_long"
    # SIGTERM, and a new start.
    DRAIN = "drain"
    # SIGKILL of two at once.
    KILL_TWO = "kill_two"
    # SIGKILL of all at once.
    KILL_ALL = "kill_all"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: seconds after the start, the processes struck, and for how long if it is a freeze."""

    at_s: float
    kind: FaultKind
    targets: tuple[str, ...]
    hold_s: float = 0.0


NATS, ROUTER = "nats", "router"
# A kind of fault and whom it strikes.
_Card: TypeAlias = tuple[FaultKind, tuple[str, ...]]


def plan(names: Sequence[str], duration_s: float, gap_s: float, seed: int) -> list[Fault]:
    """Faults at random times, `gap_s` apart on average, until `duration_s`.

    They are dealt from a shuffled deck of every kind and process, so that each comes up before any comes up twice.
    """
    rng = random.Random(f"faults {seed}")
    faults: list[Fault] = []
    deck: list[_Card] = []
    at_s = rng.uniform(0.3, 0.7) * gap_s
    while at_s < duration_s:
        if not deck:
            deck = _deck(names, rng)
        kind, targets = deck.pop()
        faults.append(Fault(round(at_s, 2), kind, targets, _hold_s(kind, rng)))
        at_s += rng.uniform(0.5, 1.5) * gap_s
    return faults


def one_of_each(names: Sequence[str], gap_s: float, seed: int) -> list[Fault]:
    """Every kind once; NATS, the router and one of the workers are killed alone, and all of them at last."""
    rng = random.Random(f"faults {seed}")
    drawn: list[_Card] = [
        (kind, (rng.choice(names),)) for kind in (FaultKind.FREEZE, FaultKind.FREEZE_LONG, FaultKind.DRAIN)
    ]
    workers = [name for name in names if name not in (NATS, ROUTER)]
    drawn += [(FaultKind.KILL, (name,)) for name in (NATS, ROUTER, rng.choice(workers))]
    drawn.append((FaultKind.KILL_TWO, tuple(rng.sample(names, 2))))
    rng.shuffle(drawn)
    drawn.append((FaultKind.KILL_ALL, tuple(names)))
    return [
        Fault(gap_s * (place + 1), kind, targets, _hold_s(kind, rng)) for place, (kind, targets) in enumerate(drawn)
    ]


def _deck(names: Sequence[str], rng: random.Random) -> list[_Card]:
    single = (FaultKind.KILL, FaultKind.KILL, FaultKind.FREEZE, FaultKind.FREEZE_LONG, FaultKind.DRAIN)
    deck: list[_Card] = [(kind, (name,)) for kind in single for name in names]
    deck += [(FaultKind.KILL_TWO, tuple(rng.sample(names, 2))) for _ in range(3)]
    deck.append((FaultKind.KILL_ALL, tuple(names)))
    rng.shuffle(deck)
    return deck


def _hold_s(kind: FaultKind, rng: random.Random) -> float:
    if kind is FaultKind.FREEZE:
        return round(rng.uniform(0.2, 2.0), 2)
    return round(rng.uniform(7.0, 14.0), 2) if kind is FaultKind.FREEZE_LONG else 0.0
