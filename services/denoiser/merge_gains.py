"""What computing forwards together brings: measured while serving, by shape and batch. No torch, no clock."""

from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from statistics import median

# Together pays where a sample takes at most this part of what it takes alone; and a larger batch is tried as long as
# the one before it is no worse than alone.
PAYS, TRY_ON = 0.95, 1.0
# A batch is judged by the median of its newest measurements, once there are so many.
_TRIALS, _KEPT = 3, 5
# After so many calls what was found is looked at again; each time that merging still does not pay, half as often.
_AGAIN, _AGAIN_MOST = 500, 8_000
_MAX_SHAPES = 256


@dataclass
class _Shape:
    """One kind of call: seconds of the newest calls by batch."""

    cap: int
    # Computed together its samples came out as they do alone.
    checked: bool = False
    seconds: dict[int, deque[float]] = field(default_factory=dict)
    calls: int = 0
    look_again_at: int = _AGAIN
    again: int = _AGAIN

    def sample_s(self, batch: int) -> float | None:
        """Seconds per sample; None while too little is known."""
        kept = self.seconds.get(batch, ())
        return median(kept) / batch if len(kept) >= _TRIALS else None

    def relative(self, batch: int) -> float | None:
        """Seconds per sample to seconds alone."""
        alone_s, sample_s = self.sample_s(1), self.sample_s(batch)
        return sample_s / alone_s if alone_s and sample_s is not None else None

    def to_try(self, most: int) -> int | None:
        """The next batch to find something out about, at most `most`; 1 first."""
        if self.sample_s(1) is None:
            return 1
        for batch in range(2, min(most, self.cap) + 1):
            relative = self.relative(batch)
            if relative is None:
                return batch
            if relative > TRY_ON:
                return None
        return None

    def best(self, most: int) -> int:
        """The batch of the fewest seconds per sample that is known to pay; 1 if none is."""
        known = {batch: self.relative(batch) for batch in range(2, min(most, self.cap) + 1)}
        paying = {batch: relative for batch, relative in known.items() if relative is not None and relative <= PAYS}
        return min(paying, key=lambda batch: paying[batch], default=1)

    def look_again(self) -> None:
        """Forget enough to find out anew: what alone costs, and, where merging did not pay, what merging costs."""
        paid = self.best(self.cap) > 1
        self.again = _AGAIN if paid else min(2 * self.again, _AGAIN_MOST)
        self.look_again_at = self.calls + self.again
        self.seconds = {batch: kept for batch, kept in self.seconds.items() if paid and batch > 1}


class MergeGains:
    """By shape: anything that is equal for equal calls. The shape that was not met for longest is forgotten."""

    def __init__(self, max_batch: int) -> None:
        self._max_batch = max_batch
        self._shapes: OrderedDict[Hashable, _Shape] = OrderedDict()

    def most(self, shape: Hashable) -> int:
        """How many are worth computing together, if only to find out; 1: none."""
        known = self._of(shape)
        trial = known.to_try(self._max_batch)
        return 1 if trial == 1 else max(trial or 1, known.best(self._max_batch))

    def batch(self, shape: Hashable, available: int) -> int:
        """How many to compute together now, of so many; counts the call."""
        known = self._of(shape)
        known.calls += 1
        if known.calls >= known.look_again_at:
            known.look_again()
        most = min(available, self._max_batch)
        return known.to_try(most) or known.best(most)

    def pays(self, shape: Hashable) -> bool:
        """Whether computing several together is known to bring something."""
        return self._of(shape).best(self._max_batch) > 1

    def saving_s(self, shape: Hashable, batch: int) -> float | None:
        """Seconds that so many together save; None if that is not known yet."""
        known = self._of(shape)
        alone_s, sample_s = known.sample_s(1), known.sample_s(batch)
        return None if alone_s is None or sample_s is None else batch * (alone_s - sample_s)

    def observe(self, shape: Hashable, batch: int, seconds: float) -> None:
        """A call of so many took so long, uninterrupted."""
        self._of(shape).seconds.setdefault(batch, deque(maxlen=_KEPT)).append(seconds)

    def limit(self, shape: Hashable, most: int) -> None:
        """More than so many do not fit into memory, or cannot be computed together at all (1)."""
        known = self._of(shape)
        known.cap = min(known.cap, max(1, most))

    def is_checked(self, shape: Hashable) -> bool:
        """Whether computing them together is known to be right."""
        return self._of(shape).checked

    def check(self, shape: Hashable) -> None:
        """Computed together they came out as they do alone."""
        self._of(shape).checked = True

    def _of(self, shape: Hashable) -> _Shape:
        known = self._shapes.get(shape)
        if known is None:
            known = self._shapes[shape] = _Shape(self._max_batch)
            if len(self._shapes) > _MAX_SHAPES:
                self._shapes.popitem(last=False)
        self._shapes.move_to_end(shape)
        return known
