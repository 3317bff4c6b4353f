"""Who may run what: which workers are a job's own, which it may borrow, and how much they can do."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import TypeVar

from services.router.core.cohort import Cohort, Kind
from services.router.core.config import PoolConfig
from services.router.core.job import Stage

Cohorts = tuple[Cohort, ...]
Parts = tuple[float, float, float]
"""Numbers for encode, denoise and decode."""
_Question = TypeVar("_Question")
_Answer = TypeVar("_Answer")
_MAX_KEPT = 10_000
_MAX_LEFT = 1_000
# Of a worker that nobody has seen: when it went, and its speed.
_NEVER = (-inf, 1.0)


class Reach:
    """Answers are worked out once and kept until the fleet says `forget`: a cohort, or a pool, is another one now."""

    def __init__(self, pools: Sequence[PoolConfig], cohorts: Mapping[Kind, Cohort]) -> None:
        self.pools = pools
        self._cohorts = cohorts
        self._capable: dict[tuple[Stage, str], Cohorts] = {}
        self._missing: dict[tuple[frozenset[Stage], str], tuple[Stage, ...]] = {}
        self._suited: dict[tuple[Stage, str, str], Cohorts] = {}
        self._borrowable: dict[tuple[str, str], Cohorts] = {}
        self._speeds: dict[tuple[str, str], Parts] = {}
        self._overlaps: dict[tuple[str, str, str, str], Parts] = {}
        # Of each stage and model the worker that went last: when, and its speed. The latest are at the end.
        self._left: dict[tuple[Stage, str], tuple[float, float]] = {}

    def note_leave(self, kind: Kind, now: float, speed: float) -> None:
        """A worker of this kind has gone, or takes no more work."""
        for model in kind.models:
            key = (kind.stage, model)
            self._left.pop(key, None)
            self._left[key] = (now, speed)
        while len(self._left) > _MAX_LEFT:
            del self._left[next(iter(self._left))]

    def forget(self) -> None:
        """Work everything out anew."""
        for answers in (
            self._capable,
            self._missing,
            self._suited,
            self._borrowable,
            self._speeds,
            self._overlaps,
        ):
            answers.clear()

    def capable(self, stage: Stage, model: str) -> Cohorts:
        """Every worker that may be given this stage of the model."""
        key = (stage, model)
        known = self._capable.get(key)
        return known if known is not None else _keep(self._capable, key, self._find_capable(stage, model))

    def missing(self, stages: frozenset[Stage], model: str) -> tuple[Stage, ...]:
        """Those of the stages that no worker may be given of the model, in their order."""
        key = (stages, model)
        known = self._missing.get(key)
        return known if known is not None else _keep(self._missing, key, self._find_missing(stages, model))

    def left_s(self, stage: Stage, model: str) -> float:
        """When a worker last went, or stopped taking work, that ran this stage of the model; -inf if none is known."""
        return self._left.get((stage, model), _NEVER)[0]

    def suited(self, stage: Stage, pool: str, model: str) -> Cohorts:
        """The workers that this stage of the jobs of a pool and model may use as its own.

        For a denoise those of its pool, or every capable one where the pool has none, so that a job is never left
        without a worker for the sake of its pool; for the other stages every capable one.
        """
        key = (stage, pool, model)
        known = self._suited.get(key)
        return known if known is not None else _keep(self._suited, key, self._find_suited(stage, pool, model))

    def borrowable(self, pool: str, model: str) -> Cohorts:
        """The denoisers of other pools that jobs of a pool and model may borrow: busy ones need a slot to spare."""
        key = (pool, model)
        known = self._borrowable.get(key)
        return known if known is not None else _keep(self._borrowable, key, self._find_borrowable(pool, model))

    def speeds(self, pool: str, model: str) -> Parts:
        """Estimated seconds a second that the workers of a pool and model do at each stage.

        Where there are none, what the one did that went last, or 1.
        """
        key = (pool, model)
        known = self._speeds.get(key)
        return known if known is not None else _keep(self._speeds, key, self._find_speeds(pool, model))

    def overlaps(self, pool: str, model: str, other_pool: str, other_model: str) -> Parts:
        """The parts (0 to 1) of the other's work that fall on workers of the first, if it is spread evenly.

        All of it where neither has any: they wait for the same ones.
        """
        key = (pool, model, other_pool, other_model)
        known = self._overlaps.get(key)
        return known if known is not None else _keep(self._overlaps, key, self._find_overlaps(*key))

    def _find_capable(self, stage: Stage, model: str) -> Cohorts:
        return tuple(cohort for kind, cohort in self._cohorts.items() if kind.stage is stage and model in kind.models)

    def _find_missing(self, stages: frozenset[Stage], model: str) -> tuple[Stage, ...]:
        return tuple(stage for stage in Stage if stage in stages and not self.capable(stage, model))

    def _find_suited(self, stage: Stage, pool: str, model: str) -> Cohorts:
        capable = self.capable(stage, model)
        if stage is not Stage.DENOISE:
            return capable
        return tuple(cohort for cohort in capable if cohort.kind.pool == pool) or capable

    def _find_borrowable(self, pool: str, model: str) -> Cohorts:
        borrow = next((each.borrow for each in self.pools if each.name == pool), "none")
        if borrow == "none":
            return ()
        slots = 2 if borrow == "preemptible" else 1
        own = self.suited(Stage.DENOISE, pool, model)
        found = self.capable(Stage.DENOISE, model)
        return tuple(cohort for cohort in found if cohort not in own and cohort.kind.slots >= slots)

    def _find_speeds(self, pool: str, model: str) -> Parts:
        encode, denoise, decode = (
            sum(cohort.speed for cohort in self.suited(stage, pool, model)) or self._left.get((stage, model), _NEVER)[1]
            for stage in Stage
        )
        return (encode, denoise, decode)

    def _find_overlaps(self, pool: str, model: str, other_pool: str, other_model: str) -> Parts:
        encode, denoise, decode = (
            _overlap(self.suited(stage, pool, model), self.suited(stage, other_pool, other_model)) for stage in Stage
        )
        return (encode, denoise, decode)


def _overlap(own: Cohorts, theirs: Cohorts) -> float:
    size = sum(cohort.size for cohort in theirs)
    if not size:
        return 0.0 if own else 1.0
    return sum(cohort.size for cohort in theirs if cohort in own) / size


def _keep(answers: dict[_Question, _Answer], question: _Question, answer: _Answer) -> _Answer:
    if len(answers) >= _MAX_KEPT:  # anyone may ask about models that nobody has
        answers.clear()
    answers[question] = answer
    return answer
