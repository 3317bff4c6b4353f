"""Re-splits the denoisers among the pools that share them, by what each pool has still to run."""

from collections.abc import Sequence
from typing import NamedTuple

from services.router.core.actions import Action, ResplitPools
from services.router.core.book import Book
from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.fleet import Fleet
from services.router.core.job import Stage
from services.router.core.pools import quotas

_CLEARLY_MORE = 2.0


class _Step(NamedTuple):
    """One denoiser from a pool to another."""

    giver: str
    taker: str


class Rebalance:
    """Looks every `rebalance_s`, and moves one denoiser if two looks in a row ask for the same.

    A pool gets one if each of its denoisers has more to run than the time between two looks, and twice as much as
    those of the pool that gives it; no pool gives its last. When there is no such need, the denoisers go back one by
    one to the configured shares.
    """

    def __init__(self, config: SchedulerConfig, pools: Sequence[PoolConfig], book: Book, fleet: Fleet) -> None:
        self._on = config.rebalance
        self._interval_s = config.rebalance_s
        self._pools = pools
        self._sharing = [pool for pool in pools if pool.count is None and not pool.labels]
        self._book = book
        self._fleet = fleet
        self._asked: _Step | None = None
        self._resplit = False
        self._due_s: float | None = None

    def next_due_s(self) -> float | None:
        """When it looks again; None if there is nothing to look at."""
        return self._due_s

    def run(self) -> list[Action]:
        """Look, if it is time."""
        if not self._on:
            return []
        now, made = self._fleet.now, list[Action]()
        if self._due_s is not None and now >= self._due_s:
            made = self._look()
            self._due_s = None
        if self._due_s is None and (self._book.jobs or self._resplit):
            self._due_s = now + self._interval_s
        return made

    def _look(self) -> list[Action]:
        counts = self._counts()
        loads = self._loads(counts)
        pressed = max(loads.values(), default=0.0) > self._interval_s
        step = self._need(counts, loads) if pressed else self._way_back(counts)
        if step is None or step != self._asked:
            self._asked = step
            return []
        self._asked = None
        counts[step.giver] -= 1
        counts[step.taker] += 1
        self._resplit = self._way_back(counts) is not None
        self._fleet.share_out(self._pools, {name: float(count) for name, count in counts.items()})
        why = f"{loads[step.taker]:.1f} s to run per denoiser, {loads[step.giver]:.1f} s in pool {step.giver}"
        return [ResplitPools(step.giver, step.taker, why if pressed else "back to the configured shares")]

    def _counts(self) -> dict[str, int]:
        counts = {pool.name: 0 for pool in self._sharing}
        for worker in self._fleet.of_stage(Stage.DENOISE):
            if worker.info.ready and worker.pool in counts:
                counts[worker.pool] += 1
        return counts

    def _loads(self, counts: dict[str, int]) -> dict[str, float]:
        """Seconds to denoise, for each denoiser of a pool."""
        unrun_s = dict.fromkeys(counts, 0.0)
        for lane in self._book.lanes.values():
            if lane.key.pool in unrun_s:
                unrun_s[lane.key.pool] += lane.ledger.total()[1]
        return {name: unrun_s[name] / max(1, count) for name, count in counts.items()}

    def _need(self, counts: dict[str, int], loads: dict[str, float]) -> _Step | None:
        givers = [name for name, count in counts.items() if count > 1]
        if not givers:
            return None
        taker, giver = max(loads, key=loads.__getitem__), min(givers, key=loads.__getitem__)
        return _Step(giver, taker) if loads[taker] > _CLEARLY_MORE * loads[giver] else None

    def _way_back(self, counts: dict[str, int]) -> _Step | None:
        asked = quotas(self._sharing, sum(counts.values()))
        givers = [name for name, count in counts.items() if count > asked[name]]
        takers = [name for name, count in counts.items() if count < asked[name]]
        return _Step(givers[0], takers[0]) if givers and takers else None
