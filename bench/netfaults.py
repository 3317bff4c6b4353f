"""Nothing accepted is lost, between hosts: each process on a host of its own, on a network that is cut, slow and lossy.

The hosts are network namespaces; a switch in user space carries their packets (bench/trial/switch.py). All the time
each packet takes 2 to 4 ms and one in 500 is lost; every few seconds one host is cut off, for a moment or for longer
than leases bear, or its packets are lost or late. The figures are those of bench.chaos. Exits with 1 if something is
not as it should be; says so and exits with 0 where namespaces cannot be made.

    python -m bench.netfaults --json --minutes 10 --seed 1
"""

import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bench.program import note
from bench.trial import program
from bench.trial.hosts import HERE, Hosts, HostsUnavailable, hosts
from bench.trial.models import write_models, write_router_config
from bench.trial.program import TrialOptions, option
from bench.trial.remote import RemoteSuite
from bench.trial.switch import Link
from bench.trial.trial import Trial

NAMES = ("nats", "router", "encoder-0", "denoiser-0", "denoiser-1", "decoder-0")
CUSTOMERS = "customers"
USUAL = Link(delay_s=0.001, jitter_s=0.001, loss=0.001)


class Trouble(StrEnum):
    """What a host's cable does for a while."""

    CUT = "cut"
    # Longer than heartbeats and leases bear.
    CUT_LONG = "cut_long"
    LOSSY = "lossy"
    SLOW = "slow"


LINKS = {
    Trouble.CUT: Link(up=False),
    Trouble.CUT_LONG: Link(up=False),
    Trouble.LOSSY: Link(delay_s=0.005, loss=0.15),
    Trouble.SLOW: Link(delay_s=0.25, jitter_s=0.1, loss=0.005),
}
HOLD_S = {Trouble.CUT: (0.5, 3.0), Trouble.CUT_LONG: (8.0, 20.0), Trouble.LOSSY: (5.0, 12.0), Trouble.SLOW: (5.0, 12.0)}


@dataclass(frozen=True, slots=True)
class Incident:
    """One host's trouble: seconds after the one before has ended, and how long it lasts."""

    after_s: float
    trouble: Trouble
    host: str
    hold_s: float


@dataclass(frozen=True)
class Options(TrialOptions):
    minutes: float = option(10.0, "of troubles")


def plan(duration_s: float, seed: int) -> list[Incident]:
    """Incidents one after the other, dealt from shuffled decks of every trouble and host. Pure."""
    rng = random.Random(f"network {seed}")
    incidents: list[Incident] = []
    deck: list[tuple[Trouble, str]] = []
    at_s = 0.0
    while at_s < duration_s:
        if not deck:
            deck = [(trouble, host) for trouble in Trouble for host in (*NAMES, CUSTOMERS)]
            rng.shuffle(deck)
        trouble, host = deck.pop()
        incident = Incident(rng.uniform(1.0, 5.0), trouble, host, rng.uniform(*HOLD_S[trouble]))
        at_s += incident.after_s + incident.hold_s
        incidents.append(incident)
    return incidents


async def netfaults(folder: Path, options: Options) -> dict[str, object]:
    """Run it; the figures. Raises `HostsUnavailable`."""
    async with hosts(NAMES, options.seed) as made:
        made.addresses[CUSTOMERS] = HERE
        suite = RemoteSuite(made, NAMES, folder, write_models(folder / "models"), write_router_config(folder))
        async with suite:
            trial = Trial(suite.address, suite.exchange, options)
            await trial.prepare()
            began = time.monotonic()
            for host in made.addresses:
                made.set_link(host, USUAL)
            incidents = plan(options.minutes * 60, options.seed)
            async with trial.open():
                await _trouble(made, incidents)
    return {
        "benchmark": "netfaults",
        "seed": options.seed,
        "seconds": round(time.monotonic() - began, 1),
        "sound": trial.accounts.sound,
        **trial.accounts.summary(),
        "incidents": len(incidents),
        "by_kind": dict(Counter(f"{each.trouble} {each.host.partition('-')[0]}" for each in incidents)),
    }


async def _trouble(made: Hosts, incidents: Sequence[Incident]) -> None:
    for incident in incidents:
        await asyncio.sleep(incident.after_s)
        note(f"{incident.trouble} {incident.host} {incident.hold_s:.1f} s")
        made.set_link(incident.host, LINKS[incident.trouble])
        await asyncio.sleep(incident.hold_s)
        made.set_link(incident.host, USUAL)


async def prove(folder: Path, options: Options) -> dict[str, object]:
    """The figures; where namespaces cannot be made, that nothing was proved."""
    try:
        return await netfaults(folder, options)
    except HostsUnavailable as error:
        print(f"bench.netfaults was skipped, nothing was proved: {error}", file=sys.stderr)
        return {"benchmark": "netfaults", "skipped": str(error), "sound": None}


if __name__ == "__main__":
    program.main(__doc__, Options, prove)
