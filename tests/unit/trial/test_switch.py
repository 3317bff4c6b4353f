"""The switch carries what it should, when it should."""

import random
import socket
from collections.abc import Callable

from bench.trial.switch import Link, Switch

HERE, THERE = socket.inet_aton("10.77.0.1"), socket.inet_aton("10.77.0.2")


def packet(destination: bytes) -> bytes:
    return bytes([0x45]) + bytes(15) + destination + b"payload"


class Bench:
    """A switch of two ports; what is late is kept until it is let go."""

    def __init__(self) -> None:
        self.arrived: list[bytes] = []
        self.late: list[tuple[float, Callable[[], None]]] = []
        ports = {HERE: self.arrived.append, THERE: self.arrived.append}
        self.switch = Switch(ports, random.Random(1), lambda delay_s, work: self.late.append((delay_s, work)))


def test_packets_go_where_they_are_meant_to() -> None:
    bench = Bench()
    bench.switch.carry(HERE, packet(THERE))
    bench.switch.carry(HERE, packet(socket.inet_aton("10.77.0.9")))
    bench.switch.carry(HERE, bytes([0x60]) + packet(THERE)[1:])
    assert bench.arrived == [packet(THERE)]


def test_both_links_of_a_way_delay_it() -> None:
    bench = Bench()
    bench.switch.links = {HERE: Link(delay_s=0.1), THERE: Link(delay_s=0.2)}
    bench.switch.carry(HERE, packet(THERE))
    [(delay_s, arrive)] = bench.late
    assert abs(delay_s - 0.3) < 1e-9
    assert not bench.arrived
    arrive()
    assert bench.arrived


def test_a_cut_loses_what_is_sent_and_what_is_under_way() -> None:
    bench = Bench()
    bench.switch.links[THERE] = Link(delay_s=0.1)
    bench.switch.carry(HERE, packet(THERE))
    bench.switch.links[THERE] = Link(up=False)
    bench.switch.carry(HERE, packet(THERE))
    bench.switch.carry(THERE, packet(HERE))
    [(_, arrive)] = bench.late
    arrive()
    assert not bench.arrived


def test_a_lossy_link_loses_its_share() -> None:
    bench = Bench()
    bench.switch.links[THERE] = Link(loss=0.3)
    for _ in range(1000):
        bench.switch.carry(HERE, packet(THERE))
    assert 600 < len(bench.arrived) < 800
