"""Plans are drawn from the seed alone, and leave nothing out."""

from bench import netfaults
from bench.trial.faults import FaultKind, one_of_each, plan
from bench.trial.orders import Fate, orders

NAMES = ("nats", "router", "encoder-0", "denoiser-0", "decoder-0")


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert plan(NAMES, 600, 5.0, 1) == plan(NAMES, 600, 5.0, 1) != plan(NAMES, 600, 5.0, 2)
    assert netfaults.plan(600, 1) == netfaults.plan(600, 1) != netfaults.plan(600, 2)


def test_a_long_plan_strikes_every_process_in_every_way() -> None:
    struck = {(fault.kind, target) for fault in plan(NAMES, 600, 10.0, 1) for target in fault.targets}
    single = (FaultKind.KILL, FaultKind.FREEZE, FaultKind.FREEZE_LONG, FaultKind.DRAIN)
    assert struck >= {(kind, name) for kind in single for name in NAMES}


def test_a_hundred_faults_fit_into_twenty_minutes() -> None:
    assert len(plan(NAMES, 20 * 60, 9.0, 1)) >= 100


def test_one_of_each_has_every_kind() -> None:
    assert {fault.kind for fault in one_of_each(NAMES, 1.0, 1)} == set(FaultKind)


def test_orders_come_in_every_fate() -> None:
    drawn = orders(1)
    assert {next(drawn).fate for _ in range(200)} == set(Fate)
