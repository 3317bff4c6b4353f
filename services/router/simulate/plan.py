"""Capacity planning: the smallest fleet that holds what is asked of it, found by simulating."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from services.router.core.config import POLICIES
from services.router.simulate.groups import speedup
from services.router.simulate.settings import FleetSettings, PolicySettings, Pool
from services.router.simulate.simulation import Run
from services.router.simulate.slo import Slo
from services.router.simulate.workload import SimulatedJob

RunFleet = Callable[[Sequence[SimulatedJob], FleetSettings], Run]


class PlanError(ValueError):
    """No fleet within the bound holds what is asked; says what is missing."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The fleet, what it did with the jobs, and how many fleets were tried."""

    run: Run
    tried: int


class Planner:
    """Looks for the fewest cards: in one pool for everything, and in a pool for each kind.

    Assumes that more workers do not do worse. Pools are first sized each by its own jobs, then made smaller while the
    whole fleet, lending included, still holds. Of fleets with equally many cards the one with fewer pools is taken,
    then that with the smaller groups.
    """

    def __init__(
        self,
        jobs: Sequence[SimulatedJob],
        slos: Sequence[Slo],
        policy: PolicySettings,
        fleet: FleetSettings,
        run: RunFleet,
    ) -> None:
        self._jobs = jobs
        self._slos = slos
        self._policy = policy
        self._fleet = fleet
        self._run = run
        self._tried = 0
        self._misses: list[str] = []

    def find(self, group_sizes: Sequence[int], max_cards: int) -> Plan:
        """The smallest fleet. Raises `PlanError` if none of up to `max_cards` cards will do."""
        kinds = sorted({job.kind for job in self._jobs})
        unknown = sorted({slo.kind for slo in self._slos} - set(kinds))
        if unknown:
            raise PlanError(f"there are no jobs of kind {', '.join(unknown)}; there are {', '.join(kinds)}")
        found = [self._one_pool(kinds, cards, max_cards) for cards in sorted(group_sizes)]
        if len(kinds) > 1 and POLICIES[self._policy.policy].pooled:
            found.append(self._pool_each(kinds, sorted(group_sizes), max_cards))
        runs = [run for run in found if run is not None]
        if not runs:
            raise PlanError(f"no fleet of up to {max_cards} cards will do: {self._misses[-1]}")
        return Plan(min(runs, key=lambda run: run.fleet.card_count), self._tried)

    def _one_pool(self, kinds: Sequence[str], cards: int, max_cards: int) -> Run | None:
        """Everything on workers of one size."""

        def sized(workers: int) -> FleetSettings:
            return replace(self._fleet, workers=workers, cards=cards, pools=())

        return self._smallest(self._jobs, self._slos, sized, cards, max_cards)

    def _pool_each(self, kinds: Sequence[str], sizes: Sequence[int], max_cards: int) -> Run | None:
        pools = []
        for kind in kinds:
            pool = self._pool_for(kind, sizes, max_cards)
            if pool is None:
                return None
            pools.append(pool)
        fleet = replace(self._fleet, pools=tuple(pools))
        run = self._try(self._jobs, self._slos, fleet) if fleet.card_count <= max_cards else None
        return None if run is None else self._shrunk(run)

    def _pool_for(self, kind: str, sizes: Sequence[int], max_cards: int) -> Pool | None:
        """The pool with the fewest cards that holds for the jobs of one kind alone."""
        jobs = [job for job in self._jobs if job.kind == kind]
        slos = [slo for slo in self._slos if slo.kind == kind]
        found = []
        for cards in sizes:

            def sized(workers: int, cards: int = cards) -> FleetSettings:
                return replace(self._fleet, pools=(Pool(kind, workers, cards),))

            run = self._smallest(jobs, slos, sized, cards, max_cards)
            if run is not None:
                found.append(run.fleet.pools[0])
        return min(found, key=lambda pool: pool.workers * pool.cards, default=None)

    def _shrunk(self, run: Run) -> Run:
        """The fleet with one worker less here or there, for as long as it holds."""
        for place in range(len(run.fleet.pools)):
            while run.fleet.pools[place].workers > 1:
                pools = list(run.fleet.pools)
                pools[place] = replace(pools[place], workers=pools[place].workers - 1)
                smaller = self._try(self._jobs, self._slos, replace(run.fleet, pools=tuple(pools)))
                if smaller is None:
                    break
                run = smaller
        return run

    def _smallest(
        self,
        jobs: Sequence[SimulatedJob],
        slos: Sequence[Slo],
        sized: Callable[[int], FleetSettings],
        cards: int,
        max_cards: int,
    ) -> Run | None:
        """The fewest workers that hold: doubled from what the mean load needs, then halved into."""
        most = max_cards // cards
        enough = min(most, _mean_load(jobs, cards))
        if enough < 1:
            return None
        best = self._try(jobs, slos, sized(enough))
        too_few = 0
        while best is None and enough < most:
            too_few, enough = enough, min(most, 2 * enough)
            best = self._try(jobs, slos, sized(enough))
        if best is None:
            return None
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            run = self._try(jobs, slos, sized(middle))
            if run is None:
                too_few = middle
            else:
                enough, best = middle, run
        return best

    def _try(self, jobs: Sequence[SimulatedJob], slos: Sequence[Slo], fleet: FleetSettings) -> Run | None:
        """The run, if everything asked for holds in it."""
        self._tried += 1
        run = self._run(jobs, fleet)
        missed = [slo for slo in slos if not slo.met(run.outcomes)]
        self._misses += [f"{slo.text} was {slo.measure(run.outcomes):.3g} with {fleet.words}" for slo in missed]
        return None if missed else run


def _mean_load(jobs: Sequence[SimulatedJob], cards: int) -> int:
    """Workers that the jobs would keep busy without a pause; at least 1."""
    arrivals = [job.arrival_s for job in jobs]
    span_s = max(arrivals) - min(arrivals)
    work_s = sum(job.service_s for job in jobs) / speedup(cards)
    return max(1, ceil(work_s / span_s)) if span_s else 1
