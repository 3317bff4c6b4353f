"""What came of the short jobs."""

from collections import Counter
from dataclasses import dataclass, field

import torch

from bench.short.alone import Course
from bench.short.plans import Plan

# Of the largest value, where forwards may have been merged.
_ROUNDING = 1e-3


@dataclass(frozen=True)
class Made:
    """A job that was finished: how it ran, as its events told, and its latents."""

    plan: Plan
    course: Course
    latents: torch.Tensor

    @property
    def is_as_planned(self) -> bool:
        """Whether an amendment that was taken is the one that was asked for, or ended the job with the step it met."""
        taken, change = self.course.taken, self.plan.change
        if taken is None:
            return True
        return change is not None and taken.step_count in (change.step_count, taken.step)


@dataclass
class Tally:
    """Counts, and the finished jobs whose latents were not those of the same job alone.

    `amends`, by what was asked for: `queued` were taken before the first step was done, `running` later; of those that
    were `late` no step was left to change; those that were `accepted` ask for the steps that it has; `over` were
    refused, since the job was over.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    amends: dict[str, Counter[str]] = field(default_factory=dict)
    wrong: list[Made] = field(default_factory=list)
    difference: float = 0.0
    merging_difference: float = 0.0
    merged_forwards: int = 0
    forwards: int = 0

    @property
    def astray(self) -> int:
        """Jobs that failed and were not to."""
        return sum(count for outcome, count in self.outcomes.items() if outcome.startswith("failed: "))

    def amended(self, plan: Plan, outcome: str) -> None:
        self.amends.setdefault(plan.change_kind, Counter())[outcome] += 1

    def compare(self, made: Made, alone: torch.Tensor) -> None:
        """Reproducible jobs bit for bit, others to rounding."""
        tolerance, difference = 0.0, float("inf")
        if made.latents.shape == alone.shape:
            difference = float((made.latents - alone).abs().max())
        if made.plan.reproducible:
            self.difference = max(self.difference, difference)
        else:
            self.merging_difference = max(self.merging_difference, difference)
            tolerance = _ROUNDING * float(alone.abs().max())
        if made.plan.fails or not made.is_as_planned or not difference <= tolerance:
            self.wrong.append(made)
