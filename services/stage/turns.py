"""Whose turn it is on the device: the rules, and nothing else. No thread, no clock, no tensor.

Work of equal `kind` may come to calls that can be computed together. Then the best-ranked of them leads: others of its
kind are let come to their own call first, where that pays, and the equal ones are joined in a `Group`.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

Rank = tuple[float, str]
_Place = tuple[bool, Rank, int]


class Phase(Enum):
    """Where a piece of work is."""

    WAITING = auto()  # not started
    READY = auto()  # between two calls, running or paused
    CALLING = auto()  # at a call that may be computed together with others
    INSIDE = auto()  # in the middle of a call, by itself
    JOINED = auto()  # its call is computed with others'


class Call(Protocol):
    """A call that may be computed together with equal ones."""

    def merges_with(self, other: "Call") -> bool:
        """Whether one call may do for both."""


class Gains(Protocol):
    """What computing calls together is known to bring."""

    def most(self, call: Call) -> int:
        """How many such calls are worth computing together, at most; 1: it does not pay."""

    def batch(self, call: Call, available: int) -> int:
        """How many to compute together now, of so many."""

    def saving_s(self, call: Call, batch: int) -> float | None:
        """Seconds that computing so many together saves; None if that is to be found out."""


@dataclass(eq=False)
class Work:
    """A piece of work. Lower ranks go first, ties by `order` of arrival.

    `alone`: only while nothing else is started, and nothing starts beside it. `holds`: once started, nothing goes
    before it.
    """

    rank: Rank
    order: int
    kind: Hashable | None = None
    alone: bool = False
    holds: bool = False
    phase: Phase = Phase.WAITING
    stopped: bool = False
    call: Call | None = None
    group: "Group | None" = None
    # Device seconds from the end of its last call to the next one; None before that.
    gap_s: float | None = None

    @property
    def started(self) -> bool:
        return self.phase is not Phase.WAITING

    @property
    def place(self) -> _Place:
        return (not (self.holds and self.started), self.rank, self.order)


@dataclass(eq=False)
class Group:
    """Calls that are computed as one. It ranks as the best of those who still want it."""

    call: Call
    members: list[Work]

    @property
    def place(self) -> _Place:
        return min(work.place for work in self.members)

    @property
    def stopped(self) -> bool:
        """Nobody wants it any more."""
        return not self.members


Unit = Work | Group


@dataclass
class Turns:
    """All work that is not done, and who goes next. `gains` is None where nothing is computed together."""

    gains: Gains | None = None
    works: list[Work] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    _kinds: Counter[Hashable] = field(default_factory=Counter)

    def add(self, work: Work) -> None:
        self.works.append(work)
        self._kinds[work.kind] += 1

    def remove(self, work: Work) -> None:
        """It is done, or has not been started and is not wanted any more."""
        self.works.remove(work)
        self._leave(work)
        self._kinds[work.kind] -= 1
        if not self._kinds[work.kind]:
            del self._kinds[work.kind]

    def dissolve(self, group: Group) -> None:
        """The group's call is done: its members go on by themselves."""
        self.groups.remove(group)
        for work in list(group.members):
            self._leave(work)

    def has_company(self, work: Work) -> bool:
        """Whether there is other work of its kind."""
        return self.gains is not None and work.kind is not None and self._kinds[work.kind] > 1

    @property
    def depth(self) -> int:
        """Pieces of started work that hold more than a job does between two calls that may be merged."""
        return len(self.groups) + sum(
            work.phase is Phase.INSIDE or (work.started and work.kind is None) for work in self.works
        )

    def next(self, has_room: bool = True) -> Unit | None:
        """Who goes next; None if there is nothing to do. Work in `CALLING` that is returned computes its call itself.

        Stopped work goes first, to end itself. Without room nothing is started beside what was started.
        """
        for group in self.groups:
            if group.stopped:
                return group
        for work in self.works:
            if work.stopped and work.started:
                self._leave(work)
                return work
        best = min(self._able(has_room), key=lambda unit: unit.place, default=None)
        if best is None or isinstance(best, Group) or best.kind is None or self.gains is None:
            return best
        return self._inside_before(best, self.gains) or self._at_call(best, self.gains, has_room)

    def _able(self, has_room: bool) -> Iterator[Unit]:
        """Whoever could run now."""
        yield from self.groups
        yield from (work for work in self.works if work.started and work.phase is not Phase.JOINED)
        yield from self._startable(has_room)

    def _startable(self, has_room: bool) -> list[Work]:
        """Waiting work that may be started: none beside work that is alone, nor such work beside other."""
        started = [work for work in self.works if work.started]
        if started and (not has_room or any(work.alone for work in started)):
            return []
        return [work for work in self.works if not work.started and not (work.alone and started)]

    def _inside_before(self, best: Work, gains: Gains) -> Unit | None:
        """A call of its kind that is under way and that it could join the next time: that is finished first."""
        inside: list[tuple[Unit, Work, int]] = [(group, group.members[0], len(group.members)) for group in self.groups]
        inside += [(work, work, 1) for work in self.works if work.phase is Phase.INSIDE and work is not best]
        for unit, member, size in inside:
            call = unit.call
            if member.kind != best.kind or call is None or gains.most(call) <= size:
                continue
            if best.call is None or call.merges_with(best.call):
                return unit
        return None

    def _at_call(self, leader: Work, gains: Gains, has_room: bool) -> Unit:
        """The leader, by itself or with others; or one of its kind, that is to come to its own call."""
        call = leader.call
        if leader.phase is not Phase.CALLING or call is None:
            return leader
        most = gains.most(call)
        if most < 2:
            return leader
        others = sorted(
            (work for work in self.works if work is not leader and work.kind == leader.kind and not work.stopped),
            key=lambda work: work.place,
        )
        met = [
            work
            for work in others
            if work.phase is Phase.CALLING and work.call is not None and call.merges_with(work.call)
        ][: most - 1]
        if len(met) + 1 < most:
            saving_s = gains.saving_s(call, len(met) + 2)
            startable = self._companions(has_room)
            for work in others:
                if (work.phase is Phase.READY or work in startable) and _pays(work, saving_s):
                    return work
        size = gains.batch(call, len(met) + 1)
        return self._join(call, [leader, *met[: size - 1]]) if size > 1 else leader

    def _companions(self, has_room: bool) -> list[Work]:
        """Waiting work that may be started for another's sake: none past work that waits to be alone."""
        first = min((work.place for work in self.works if work.alone and not work.started), default=None)
        return [work for work in self._startable(has_room) if first is None or work.place < first]

    def _join(self, call: Call, members: list[Work]) -> Group:
        group = Group(call, members)
        for work in members:
            work.phase, work.group = Phase.JOINED, group
        self.groups.append(group)
        return group

    def _leave(self, work: Work) -> None:
        if work.group is not None:
            work.group.members.remove(work)
            work.group, work.phase = None, Phase.READY


def _pays(work: Work, saving_s: float | None) -> bool:
    """Whether waiting for work to come to its call is worth it. Its first call tells how long it takes."""
    return work.gap_s is None or saving_s is None or work.gap_s <= saving_s
