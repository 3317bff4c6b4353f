"""Hosts of their own on one machine: a network namespace each, joined by a switch that can be told to misbehave."""

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict

from bench.trial.switch import Link

NETWORK = "10.77.0"
# This process's own address in that network.
HERE = f"{NETWORK}.1"
# Larger packets than Ethernet's: fewer for the switch to carry.
MTU = 16_000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


class HostsUnavailable(Exception):
    """This machine lets us make no network namespaces or devices; the message says what to do."""


class Hosts:
    """Addresses by name, how to run a command there, and what each host's cable does."""

    def __init__(self, addresses: dict[str, str], prefix: str, switch: asyncio.subprocess.Process) -> None:
        self.addresses = addresses
        self._prefix = prefix
        self._switch = switch

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """The command, to be run on that host."""
        return [_ip(), "netns", "exec", f"{self._prefix}{host}", *command]

    def set_link(self, host: str, link: Link) -> None:
        """From now on the host's cable is like that."""
        assert self._switch.stdin is not None, "a pipe was asked for"
        self._switch.stdin.write(json.dumps({"host": self.addresses[host], **asdict(link)}).encode() + b"\n")


@asynccontextmanager
async def hosts(names: Sequence[str], seed: int) -> AsyncIterator[Hosts]:
    """Make the hosts; afterwards nothing is left of them. Raises `HostsUnavailable`."""
    prefix = f"triptych-{os.getpid()}-"
    addresses = {name: f"{NETWORK}.{place}" for place, name in enumerate(names, start=2)}
    made: list[str] = []
    descriptors: dict[str, int] = {}
    switch = None
    try:
        try:
            descriptors[HERE] = _device(f"trip{os.getpid() % 100_000}", None, HERE)
            for name, address in addresses.items():
                _run("netns", "add", prefix + name)
                made.append(prefix + name)
                descriptors[address] = _device(f"tri{address.rpartition('.')[2]}", prefix + name, address)
        except (OSError, subprocess.CalledProcessError) as error:
            raise HostsUnavailable(
                f"{_said(error)}; it takes Linux, root (CAP_NET_ADMIN), ip and /dev/net/tun"
            ) from error
        switch = await _start_switch(seed, descriptors)
        yield Hosts(addresses, prefix, switch)
    finally:
        if switch is not None:
            with contextlib.suppress(ProcessLookupError):
                switch.kill()
            await switch.wait()
        for descriptor in descriptors.values():
            os.close(descriptor)  # the device goes with it
        for name in made:
            _delete(name)


async def _start_switch(seed: int, descriptors: dict[str, int]) -> asyncio.subprocess.Process:
    ports = [f"{address}={descriptor}" for address, descriptor in descriptors.items()]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.trial.switch", str(seed), *ports),
        stdin=asyncio.subprocess.PIPE,
        pass_fds=list(descriptors.values()),
    )


def _device(name: str, namespace: str | None, address: str) -> int:
    """Make a network device in the namespace, or here; packets for it are read from the descriptor."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR)
    try:
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
        if namespace is not None:
            _run("link", "set", name, "netns", namespace)
        where = ["-n", namespace] if namespace is not None else []
        _run(*where, "addr", "add", f"{address}/24", "dev", name)
        _run(*where, "link", "set", name, "mtu", str(MTU), "up")
        if namespace is not None:
            _run(*where, "link", "set", "lo", "up")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _delete(namespace: str) -> None:
    subprocess.run([_ip(), "netns", "delete", namespace], check=False, capture_output=True)


def _run(*arguments: str) -> None:
    subprocess.run([_ip(), *arguments], check=True, capture_output=True, text=True)


def _ip() -> str:
    found = shutil.which("ip")
    if found is None:
        raise FileNotFoundError("ip was not found (package iproute2)")
    return found


def _said(error: Exception) -> str:
    stderr = getattr(error, "stderr", None)
    return (stderr or str(error)).strip()
