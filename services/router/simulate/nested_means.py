"""Means over nested groups: what was seen in a narrow group counts there, eked out by what was seen around it."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

_Name = tuple[Hashable, ...]


@dataclass(slots=True)
class _Group:
    """A sum of values and of their weights, older ones weighing less."""

    total: float = 0.0
    weight: float = 0.0


class NestedMeans:
    """Learns one mean a group, each shrunk towards the group around it (partial pooling, with forgetting).

    A path names the groups that a value is in, the widest first; around them all is one group that has every value.
    A group's mean counts the mean of the group around it as `prior_weight` values; `prior` are that many values that
    were there before the first. With each value in a group its earlier ones weigh `keep` times as much, so at most
    1 / (1 - keep) of them count. The `max_groups` used last are kept.
    """

    def __init__(
        self, prior: float, *, prior_weight: float = 3.0, keep: float = 0.85, max_groups: int = 10_000
    ) -> None:
        self._prior_weight = prior_weight
        self._keep = keep
        self._max_groups = max_groups
        self._all = _Group(prior * prior_weight, prior_weight)
        self._groups: dict[_Name, _Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def mean(self, path: Sequence[Hashable]) -> float:
        """The mean in the narrowest group of the path."""
        mean = self._all.total / self._all.weight
        for name in _names(path):
            group = self._groups.get(name)
            if group is not None:
                mean = (group.total + self._prior_weight * mean) / (group.weight + self._prior_weight)
        return mean

    def add(self, path: Sequence[Hashable], value: float) -> None:
        """Learn a value in every group of the path."""
        self._take(self._all, value)
        for name in _names(path):
            group = self._groups.pop(name, None) or _Group()
            self._take(group, value)
            self._groups[name] = group
        while len(self._groups) > self._max_groups:
            del self._groups[next(iter(self._groups))]

    def _take(self, group: _Group, value: float) -> None:
        group.total = group.total * self._keep + value
        group.weight = group.weight * self._keep + 1.0


def _names(path: Sequence[Hashable]) -> Iterator[_Name]:
    return (tuple(path[:length]) for length in range(1, len(path) + 1))
