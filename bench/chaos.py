"""Nothing accepted is lost: a whole suite under load while its processes are killed, frozen and drained.

Customers submit, watch, give up connections, cancel, amend, leave, and order what must fail, at any of the routers,
while every few seconds a process of the suite (the router that leads or any other, NATS, a worker) is struck, by a plan
drawn from the seed. Every kind of job was made undisturbed before: what succeeds must be the same, bit for bit. To be:
`succeeded` = `accepted`; `failed`, `lost`, `duplicated`, `wrong_bytes`, `wrong_end` 0; `long.faults_each` at least
`--least-faults`; see docs/testing.md. Exits with 1 if something is not so.

    python -m bench.chaos --json --minutes 20 --seed 1
"""

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench.program import note
from bench.trial import program
from bench.trial.accounts import Accounts
from bench.trial.faults import ROUTER, Fault, one_of_each, plan, within
from bench.trial.leader import find_leader
from bench.trial.program import TrialOptions, option
from bench.trial.saboteur import Saboteur, Strike
from bench.trial.scene import suite_config
from bench.trial.toll import faults_borne, fewest_borne, long_jobs
from bench.trial.trial import Trial
from triptych.exchange import Exchange
from triptych.supervisor import Suite


@dataclass(frozen=True)
class Options(TrialOptions):
    """`one_of_each`: every kind of fault once, in place of a plan for so many minutes."""

    minutes: float = option(20.0, "of orders and faults")
    gap_s: float = option(6.0, "between two faults, on average")
    least_faults: int = option(5, "that every long job is to bear")
    customers: int = option(6, "with short orders")
    long_customers: int = option(2, "with long orders")
    routers: int = option(2, "of which one leads")
    denoisers: int = option(2, "beside one encoder and one decoder")
    one_of_each: bool = False


async def chaos(folder: Path, options: Options) -> dict[str, object]:
    """Run it; the figures."""
    config = suite_config(folder, routers=options.routers, denoisers=options.denoisers)
    async with Suite(config) as suite, Exchange(replace(suite.exchange, manage_streams=False)) as exchange:
        trial = Trial(suite.address, suite.exchange, options)
        await trial.prepare()
        saboteur = Saboteur(suite.processes, lambda: find_leader(exchange, router_addresses(suite)), note)
        began = time.monotonic()
        async with trial.open():
            await saboteur.run(_faults(list(suite.processes), options, trial, saboteur.strikes))
    return report(options, trial, saboteur.strikes, time.monotonic() - began)


def router_addresses(suite: Suite) -> dict[str, str]:
    """`host:port` of each router, by its name."""
    routers = {name: each for name, each in suite.processes.items() if name.partition("-")[0] == ROUTER}
    return {name: service.address or "" for name, service in routers.items()}


def _faults(names: Sequence[str], options: Options, trial: Trial, strikes: Sequence[Strike]) -> Iterator[Fault]:
    """As planned. Then no orders are made any more, and it goes on for the long jobs that have not borne enough."""
    unending = plan(names, options.gap_s, options.seed)
    if options.one_of_each:
        yield from one_of_each(names, options.gap_s, options.seed)
    else:
        yield from within(unending, options.minutes * 60)
    trial.stop_orders()
    while any(faults_borne(entry, strikes) < options.least_faults for entry in trial.open_long_jobs()):
        yield next(unending)


def report(options: Options, trial: Trial, strikes: Sequence[Strike], seconds: float) -> dict[str, object]:
    """The figures as they are printed."""
    entries = trial.accounts.entries.values()
    fewest = fewest_borne(entries, strikes)
    tried = not options.long_customers or (fewest is not None and fewest >= options.least_faults)
    return {
        "benchmark": "chaos",
        "seed": options.seed,
        "seconds": round(seconds, 1),
        "sound": trial.accounts.sound and tried and all(strike.back_s is not None for strike in strikes),
        **trial.accounts.summary(),
        "long": {"alone_s": trial.long_alone_s, "least_faults": options.least_faults, **long_jobs(entries, strikes)},
        "faults": len(strikes),
        "by_kind": recoveries(trial.accounts, strikes),
    }


def recoveries(accounts: Accounts, strikes: Sequence[Strike]) -> dict[str, object]:
    """By kind of fault and process: how many, seconds until it was back, seconds until the next job succeeded."""
    ends = sorted(entry.ended_s for entry in accounts.entries.values() if entry.end == "succeeded")
    groups: dict[str, list[Strike]] = defaultdict(list)
    for strike in strikes:
        target = strike.fault.targets[0].partition("-")[0] if len(strike.fault.targets) == 1 else "several"
        groups[f"{strike.fault.kind} {target}"].append(strike)
    return {
        name: {
            "count": len(group),
            "back_s": _spread([strike.back_s for strike in group if strike.back_s is not None]),
            "next_success_s": _spread([end - strike.at_s for strike in group for end in _next(ends, strike.at_s)]),
        }
        for name, group in sorted(groups.items())
    }


def _next(ends: list[float], after_s: float) -> list[float]:
    """The first end after a time, if there is one."""
    place = bisect_right(ends, after_s)
    return ends[place : place + 1]


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"p50": round(median(values), 2), "max": round(max(values), 2)} if values else {}


if __name__ == "__main__":
    program.main(__doc__, Options, chaos)
