"""A clock that goes on whatever is done to the machine's."""

import pytest

from services.router.clock import Clock


class Machine:
    """Its clock is `wall_s`; `steady_s` is what nobody can set."""

    def __init__(self) -> None:
        self.wall_s = 1000.0
        self.steady_s = 5.0

    def pass_s(self, seconds: float) -> None:
        self.wall_s += seconds
        self.steady_s += seconds


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def clock(machine: Machine) -> Clock:
    return Clock(lambda: machine.wall_s, lambda: machine.steady_s)


def test_it_tells_the_machines_time(machine: Machine, clock: Clock) -> None:
    assert clock.now_s() == 1000.0
    machine.pass_s(10.0)
    assert clock.now_s() == 1010.0
    machine.wall_s += 3600.0
    assert clock.now_s() == 4610.0


def test_set_back_it_goes_on_at_half_its_pace_until_the_machine_is_there(machine: Machine, clock: Clock) -> None:
    machine.wall_s -= 100.0
    assert clock.now_s() == 1000.0
    machine.pass_s(20.0)
    assert clock.now_s() == 1010.0
    machine.pass_s(180.0)
    assert clock.now_s() == 1100.0
    machine.pass_s(50.0)
    assert clock.now_s() == 1150.0


def test_behind_anothers_it_goes_on_from_there(machine: Machine, clock: Clock) -> None:
    clock.advance(990.0)
    assert clock.now_s() == 1000.0
    clock.advance(1100.0)
    assert clock.now_s() == 1100.0
    machine.pass_s(20.0)
    assert clock.now_s() == 1110.0
