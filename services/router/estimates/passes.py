"""How often a step runs the network, and over how many samples: what the guider does, as it shows."""

from collections.abc import Iterable
from dataclasses import dataclass

from services.router.estimates.price import JobShape

_MAX_KINDS = 512
_MEMORY = 8

PassesState = tuple[str, int, float, int]
"""A model, forwards a step as its shape says, as they were, and samples of a forward."""


@dataclass(frozen=True, slots=True)
class StepPasses:
    """Forwards of one step, on the average over the steps (a guider may rest for some), and samples of each."""

    per_step: float
    batch: int = 1


class Passes:
    """By model, and by what a job's shape says of its guidance. Of at most `_MAX_KINDS`, those seen last."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], StepPasses] = {}

    def of(self, shape: JobShape) -> StepPasses:
        """What such jobs did lately; before the first, what the shape says."""
        return self._seen.get((shape.model, shape.forwards_per_step)) or StepPasses(float(shape.forwards_per_step))

    def observe(self, shape: JobShape, forwards: int, batch: int) -> None:
        """Learn that all steps of all outputs of the shape ran so many forwards, most over `batch` samples."""
        steps = shape.step_count * shape.output_count
        if forwards < 1 or batch < 1 or steps < 1:
            return
        key, now = (shape.model, shape.forwards_per_step), forwards / steps
        before = self._seen.pop(key, None)
        if before is not None and before.batch == batch:
            now = before.per_step + (now - before.per_step) / _MEMORY
        self._seen[key] = StepPasses(now, batch)
        while len(self._seen) > _MAX_KINDS:
            del self._seen[next(iter(self._seen))]

    def state(self) -> list[PassesState]:
        """What was seen, as plain values."""
        return [(model, nominal, each.per_step, each.batch) for (model, nominal), each in self._seen.items()]

    def restore(self, state: Iterable[PassesState]) -> None:
        """Take up what was seen before. Raises `ValueError` where that makes no sense."""
        seen = {}
        for model, nominal, per_step, batch in state:
            if not (0.0 < per_step < 1000.0 and batch >= 1):
                raise ValueError(f"not passes of {model}: {per_step}, {batch}")
            seen[str(model), int(nominal)] = StepPasses(float(per_step), int(batch))
        self._seen = seen
