"""A switch in user space: carries packets between network devices, late, not at all, or not for all.

It is a process of its own, with the devices (TUN) as inherited descriptors. A line of JSON on its standard input sets a
host's link: {"host": "10.77.0.4", "delay_s": 0.05, "jitter_s": 0.01, "loss": 0.02, "up": true}. A packet passes the
links of both hosts. Unlike the kernel's netem it needs no module, and it works the same everywhere.

    python -m bench.trial.switch SEED ADDRESS=DESCRIPTOR…
"""

import asyncio
import contextlib
import json
import os
import random
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

PACKET_BYTES = 65_536
DESTINATION = slice(16, 20)
# Packets that are under way at once; more are dropped, as a switch's buffer would.
MAX_UNDER_WAY = 4096


@dataclass(frozen=True, slots=True)
class Link:
    """What a host's cable does to each packet, either way. `delay_s` is one way; `loss` from 0 to 1."""

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    up: bool = True


class Switch:
    """Carries packets by their destination. `later(delay_s, work)` runs work after a time."""

    def __init__(
        self,
        ports: dict[bytes, Callable[[bytes], None]],
        rng: random.Random,
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self.links = dict.fromkeys(ports, Link())
        self._ports = ports
        self._rng = rng
        self._later = later
        self._under_way = 0

    def carry(self, source: bytes, packet: bytes) -> None:
        """A host has sent a packet (IPv4; others are dropped)."""
        destination = packet[DESTINATION]
        if packet[0] >> 4 != 4 or destination not in self._ports:
            return
        delay_s = 0.0
        for link in (self.links[source], self.links[destination]):
            if not link.up or self._rng.random() < link.loss:
                return
            delay_s += link.delay_s + self._rng.uniform(0, link.jitter_s)
        if delay_s <= 0:
            self._ports[destination](packet)
        elif self._under_way < MAX_UNDER_WAY:
            self._under_way += 1
            self._later(delay_s, lambda: self._arrive(destination, packet))

    def _arrive(self, destination: bytes, packet: bytes) -> None:
        self._under_way -= 1
        # Cut meanwhile: what was on the cable is gone.
        if self.links[destination].up:
            self._ports[destination](packet)


async def run(seed: int, descriptors: dict[bytes, int]) -> None:
    """Carry until standard input ends."""
    loop = asyncio.get_running_loop()
    ports = {address: _writer(descriptor) for address, descriptor in descriptors.items()}
    switch = Switch(ports, random.Random(seed), loop.call_later)
    for address, descriptor in descriptors.items():
        os.set_blocking(descriptor, False)
        loop.add_reader(descriptor, _read_all, descriptor, address, switch)
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        setting = json.loads(line)
        address = socket.inet_aton(setting.pop("host"))
        switch.links[address] = replace(Link(), **setting)


def _read_all(descriptor: int, address: bytes, switch: Switch) -> None:
    while True:
        try:
            packet = os.read(descriptor, PACKET_BYTES)
        except BlockingIOError:
            return
        switch.carry(address, packet)


def _writer(descriptor: int) -> Callable[[bytes], None]:
    def write(packet: bytes) -> None:
        with contextlib.suppress(BlockingIOError):  # its buffer is full: dropped, and sent again by TCP
            os.write(descriptor, packet)

    return write


def main() -> None:
    seed, *ports = sys.argv[1:]
    pairs = (port.split("=") for port in ports)
    asyncio.run(run(int(seed), {socket.inet_aton(address): int(descriptor) for address, descriptor in pairs}))


if __name__ == "__main__":
    main()
