"""Whose turn it is: nobody waits for ever, the best goes first, and what is joined is equal."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from services.stage.turns import Group, Phase, Turns, Unit, Work

# Parts of a call between two of its yield points.
PARTS = 3


@dataclass
class Shape:
    """A call that merges with those of its name."""

    name: str

    def merges_with(self, other: object) -> bool:
        return isinstance(other, Shape) and other.name == self.name


@dataclass
class Table:
    """Gains that are known: how many pay, by shape; `now` of them each time."""

    pays: dict[str, int]
    save_s: float | None = 1.0
    asked: list[int] = field(default_factory=list)

    def most(self, call: Shape) -> int:
        return self.pays.get(call.name, 1)

    def batch(self, call: Shape, available: int) -> int:
        self.asked.append(available)
        return min(available, self.most(call))

    def saving_s(self, call: Shape, batch: int) -> float | None:
        return self.save_s


@dataclass(eq=False)
class Job(Work):
    """Work that makes so many calls of one shape. `done` are the parts of calls that it has had computed."""

    shape: str = "small"
    calls: int = 2
    made: int = 0
    part: int = 0


class Device:
    """Does what the device thread does, one part of a call at a time."""

    def __init__(self, table: Table | None) -> None:
        self.turns = Turns(table)
        self.history: list[tuple[str, ...]] = []
        self.finished: list[Job] = []
        # Who ran in the last tick.
        self.last: list[Work] = []
        self._parts: dict[Group, int] = {}

    def add(self, job: Job) -> Job:
        self.turns.add(job)
        return job

    def stop(self, job: Job) -> None:
        job.stopped = True
        if not job.started and job in self.turns.works:
            self.turns.remove(job)

    def tick(self) -> Unit | None:
        unit = self.turns.next()
        self.last = list(unit.members) if isinstance(unit, Group) else [unit] if unit else []
        if isinstance(unit, Group):
            self._compute(unit)
        elif isinstance(unit, Job):
            self._run(unit)
        return unit

    def run(self, ticks: int = 10_000) -> None:
        for _ in range(ticks):
            if self.tick() is None:
                return
        raise AssertionError("somebody waits for ever")

    def _compute(self, group: Group) -> None:
        if not group.stopped:
            self.history.append(tuple(sorted(work.rank[1] for work in group.members)))
            self._parts[group] = self._parts.get(group, 0) + 1
            if self._parts[group] < PARTS:
                return
            for work in group.members:
                assert isinstance(work, Job)
                work.made += 1
        members = list(group.members)
        self.turns.dissolve(group)
        for work in members:
            work.call = None

    def _run(self, job: Job) -> None:
        if job.stopped:
            self.turns.remove(job)
            return
        if job.phase in (Phase.CALLING, Phase.INSIDE):
            job.phase = Phase.INSIDE
            self.history.append((job.rank[1],))
            job.part += 1
            if job.part == PARTS:
                job.part, job.made, job.phase, job.call = 0, job.made + 1, Phase.READY, None
            return
        job.phase = Phase.READY
        if job.made == job.calls:
            self.finished.append(job)
            self.turns.remove(job)
        else:
            job.phase, job.call = Phase.CALLING, Shape(job.shape)


def job(name: str, rank: float, calls: int = 2, **more: object) -> Job:
    return Job((rank, name), 0, **{"kind": "kind", **more}, calls=calls)  # type: ignore[arg-type]


def test_equal_calls_are_joined_and_the_best_leads() -> None:
    device = Device(Table({"small": 8}))
    for name, rank in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        device.add(job(name, rank))
    device.run()
    assert device.history == [("a", "b", "c")] * 2 * PARTS


def test_nothing_is_joined_where_it_does_not_pay() -> None:
    device = Device(Table({}))
    for name, rank in (("b", 2.0), ("a", 1.0)):
        device.add(job(name, rank))
    device.run()
    assert device.history == [("a",)] * 2 * PARTS + [("b",)] * 2 * PARTS


def test_work_of_another_kind_or_of_none_is_left_alone() -> None:
    device = Device(Table({"small": 8}))
    device.add(job("a", 1.0, kind=None))
    device.add(job("b", 2.0, kind=None))
    device.add(job("c", 3.0, kind="other"))
    device.run()
    assert device.history == [(name,) for name in "abc" for _ in range(2 * PARTS)]


def test_a_better_one_of_another_kind_goes_first_in_the_middle_of_a_group() -> None:
    device = Device(Table({"small": 8}))
    device.add(job("b", 2.0))
    device.add(job("c", 3.0))
    while not device.history:
        device.tick()
    device.add(job("a", 1.0, kind="other", shape="large"))
    device.run()
    assert device.history == [("b", "c")] + [("a",)] * 2 * PARTS + [("b", "c")] * (2 * PARTS - 1)


def test_a_better_one_of_the_same_kind_waits_for_the_call_under_way_and_joins() -> None:
    device = Device(Table({"small": 8}))
    device.add(job("b", 2.0, calls=3))
    while not device.history:
        device.tick()
    device.add(job("a", 1.0))
    device.run()
    assert device.history == [("b",)] * PARTS + [("a", "b")] * 2 * PARTS


def test_it_does_not_wait_where_merging_does_not_pay() -> None:
    device = Device(Table({}))
    device.add(job("b", 2.0, calls=1))
    while not device.history:
        device.tick()
    device.add(job("a", 1.0, calls=1))
    device.run()
    assert device.history == [("b",)] + [("a",)] * PARTS + [("b",)] * (PARTS - 1)


def test_a_cancelled_member_leaves_and_the_others_go_on() -> None:
    device = Device(Table({"small": 8}))
    best, other = device.add(job("a", 1.0, calls=1)), device.add(job("b", 2.0, calls=1))
    while not device.history:
        device.tick()
    device.stop(best)
    device.run()
    assert device.history == [("a", "b")] + [("b",)] * (PARTS - 1)
    assert device.finished == [other]


def test_a_call_that_nobody_wants_any_more_ends() -> None:
    device = Device(Table({"small": 8}))
    jobs = [device.add(job(name, 1.0)) for name in "ab"]
    while not device.history:
        device.tick()
    for each in jobs:
        device.stop(each)
    device.run()
    assert len(device.history) == 1
    assert not device.turns.works
    assert not device.turns.groups


def test_one_that_takes_longer_to_come_than_it_saves_is_not_waited_for() -> None:
    table = Table({"small": 8}, save_s=0.5)
    device = Device(table)
    device.add(job("a", 1.0, calls=1))
    late = device.add(job("b", 2.0, calls=1))
    late.phase, late.gap_s = Phase.READY, 0.6
    device.run()
    assert device.history == [("a",)] * PARTS + [("b",)] * PARTS


def test_work_that_wants_to_be_alone_is_not_started_for_the_sake_of_a_group_nor_passed() -> None:
    device = Device(Table({"small": 8}))
    device.add(job("a", 1.0))
    device.add(job("b", 2.0, alone=True, kind=None))
    device.add(job("c", 3.0))
    device.run()
    assert device.history == [(name,) for name in "abc" for _ in range(2 * PARTS)]


NOT_FIELDS = ("rank", "arrives", "stops", "amended")
JOBS = st.lists(
    st.builds(
        dict,
        rank=st.integers(0, 3).map(float),
        calls=st.integers(0, 4),
        kind=st.sampled_from([None, "one", "two"]),
        shape=st.sampled_from(["small", "other", "large"]),
        alone=st.sampled_from([False, False, False, True]),
        holds=st.booleans(),
        # When it arrives, and when it is cancelled: so many ticks after the start.
        arrives=st.integers(0, 30),
        stops=st.none() | st.integers(0, 40),
        # Another rank, and when it gets it.
        amended=st.none() | st.tuples(st.integers(0, 40), st.integers(0, 3).map(float)),
    ),
    min_size=1,
    max_size=9,
)


@given(JOBS, st.integers(1, 5), st.sampled_from([None, 0.0, 1.0]))
def test_nobody_waits_for_ever(plans: list[dict[str, object]], most: int, save_s: float | None) -> None:
    """Whatever arrives, is amended, is cancelled when: all the rest is done, the best first, equal ones together."""
    device = Device(Table({"small": most, "other": 2}, save_s))
    jobs: dict[int, Job] = {}
    for tick in range(60):
        for index, plan in enumerate(plans):
            if plan["arrives"] == tick:
                fields = {name: value for name, value in plan.items() if name not in NOT_FIELDS}
                jobs[index] = device.add(Job((plan["rank"], f"{index}"), index, **fields))  # type: ignore[arg-type]
            amended = plan["amended"]
            if isinstance(amended, tuple) and amended[0] == tick and index in jobs:
                jobs[index].rank = (amended[1], f"{index}")
            stops = plan["stops"]
            if isinstance(stops, int) and stops == tick and index in jobs:
                device.stop(jobs[index])
        _tick_and_check(device)
    for _ in range(10_000):
        if _tick_and_check(device) is None:
            break
    assert not device.turns.works
    assert not device.turns.groups
    wanted = [each for each in jobs.values() if not each.stopped]
    assert all(each.made == each.calls for each in wanted)
    assert all(each in device.finished for each in wanted)


def _tick_and_check(device: Device) -> Unit | None:
    wanted = [work for work in device.turns.works if not work.stopped]
    best = min((work.place for work in wanted if work.started), default=None)
    stopped = len(wanted) < len(device.turns.works) or any(group.stopped for group in device.turns.groups)
    unit = device.tick()
    if isinstance(unit, Group):
        assert len({work.kind for work in device.last}) <= 1
        assert len({work.shape for work in device.last if isinstance(work, Job)}) <= 1
        assert device.turns.gains is None or len(device.last) <= device.turns.gains.most(unit.call)
    if best is not None and not stopped:
        # It is the best that was started, or better, or it helps such a one: it is of its kind.
        ahead = [work for work in wanted if work.place <= best]
        assert any(work in ahead or work.kind in {one.kind for one in ahead} - {None} for work in device.last)
    return unit
