"""Plans are drawn from the seed alone, and leave nothing out."""

from itertools import islice

from bench import netfaults
from bench.trial.faults import LEADER, Fault, FaultKind, one_of_each, plan, within
from bench.trial.orders import Fate, orders

NAMES = ("nats", "router", "router-1", "encoder-0", "denoiser-0", "decoder-0")


def planned(minutes: float, gap_s: float, seed: int) -> list[Fault]:
    return list(within(plan(NAMES, gap_s, seed), minutes * 60))


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert planned(10, 5.0, 1) == planned(10, 5.0, 1) != planned(10, 5.0, 2)
    assert netfaults.plan(600, 1) == netfaults.plan(600, 1) != netfaults.plan(600, 2)


def test_a_long_plan_strikes_the_leader_and_every_process_in_every_way() -> None:
    struck = {(fault.kind, target) for fault in planned(10, 10.0, 1) for target in fault.targets}
    single = (FaultKind.KILL, FaultKind.FREEZE, FaultKind.FREEZE_LONG, FaultKind.DRAIN)
    assert struck >= {(kind, name) for kind in single for name in (*NAMES, LEADER)}


def test_a_hundred_faults_fit_into_twenty_minutes() -> None:
    assert len(planned(20, 9.0, 1)) >= 100


def test_a_plan_never_ends() -> None:
    assert len(list(islice(plan(NAMES, 5.0, 1), 1000))) == 1000


def test_one_of_each_has_every_kind_and_strikes_the_leader() -> None:
    faults = list(one_of_each(NAMES, 1.0, 1))
    assert {fault.kind for fault in faults} == set(FaultKind)
    assert {fault.kind for fault in faults if LEADER in fault.targets} == {FaultKind.KILL, FaultKind.FREEZE_LONG}


def test_orders_come_in_every_fate() -> None:
    drawn = orders(1)
    assert {next(drawn).fate for _ in range(200)} == set(Fate)
