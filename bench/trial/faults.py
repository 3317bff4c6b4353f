"""Which process is struck how, and when: a plan drawn from a seed. Pure."""

import random
from collections.abc import Iterable, Iterator, Sequence
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
    """One fault: seconds after the one before, the processes struck, and for how long if it is a freeze."""

    after_s: float
    kind: FaultKind
    targets: tuple[str, ...]
    hold_s: float = 0.0


NATS, ROUTER = "nats", "router"
# A target: the router that leads when its turn comes, whichever that is.
LEADER = "leader"
# A kind of fault and whom it strikes.
_Card: TypeAlias = tuple[FaultKind, tuple[str, ...]]


def plan(names: Sequence[str], gap_s: float, seed: int) -> Iterator[Fault]:
    """Faults on these processes, and on the leader, for ever, `gap_s` apart on average.

    They are dealt from a shuffled deck of every kind and target, so that each comes up before any comes up twice.
    """
    rng = random.Random(f"faults {seed}")
    while True:
        for kind, targets in _deck(names, rng):
            yield Fault(round(rng.uniform(0.5, 1.5) * gap_s, 2), kind, targets, _hold_s(kind, rng))


def within(faults: Iterable[Fault], duration_s: float) -> Iterator[Fault]:
    """Those of the first so many seconds."""
    at_s = 0.0
    for fault in faults:
        at_s += fault.after_s
        if at_s >= duration_s:
            return
        yield fault


def one_of_each(names: Sequence[str], gap_s: float, seed: int) -> Iterator[Fault]:
    """Every kind once; NATS, the leader and a worker are killed alone, the leader hangs, and all are killed at last."""
    rng = random.Random(f"faults {seed}")
    drawn: list[_Card] = [(kind, (rng.choice(names),)) for kind in (FaultKind.FREEZE, FaultKind.DRAIN)]
    drawn.append((FaultKind.FREEZE_LONG, (LEADER,)))
    workers = [name for name in names if name.partition("-")[0] not in (NATS, ROUTER)]
    drawn += [(FaultKind.KILL, (name,)) for name in (NATS, LEADER, rng.choice(workers))]
    drawn.append((FaultKind.KILL_TWO, tuple(rng.sample(names, 2))))
    rng.shuffle(drawn)
    drawn.append((FaultKind.KILL_ALL, tuple(names)))
    for kind, targets in drawn:
        yield Fault(gap_s, kind, targets, _hold_s(kind, rng))


def _deck(names: Sequence[str], rng: random.Random) -> list[_Card]:
    single = (FaultKind.KILL, FaultKind.KILL, FaultKind.FREEZE, FaultKind.FREEZE_LONG, FaultKind.DRAIN)
    deck: list[_Card] = [(kind, (name,)) for kind in single for name in (*names, LEADER)]
    deck += [(FaultKind.KILL_TWO, tuple(rng.sample(names, 2))) for _ in range(3)]
    deck.append((FaultKind.KILL_ALL, tuple(names)))
    rng.shuffle(deck)
    return deck


def _hold_s(kind: FaultKind, rng: random.Random) -> float:
    if kind is FaultKind.FREEZE:
        return round(rng.uniform(0.2, 2.0), 2)
    return round(rng.uniform(7.0, 14.0), 2) if kind is FaultKind.FREEZE_LONG else 0.0
