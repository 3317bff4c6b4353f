"""Nothing accepted is lost: a whole suite under load while its processes are killed, frozen and drained.

Customers submit, watch, give up connections, cancel, amend, leave, and order what must fail, while every few seconds a
process of the suite (router, NATS, workers) is struck, by a plan drawn from the seed. Every kind of job was made
undisturbed before: what succeeds must be the same, bit for bit. To be: `succeeded` = `accepted`; `failed`, `lost`,
`duplicated`, `wrong_bytes`, `wrong_end` 0; see docs/testing.md. Exits with 1 if something is not so.

    python -m bench.chaos --json --minutes 20 --seed 1
"""

import argparse
import asyncio
import json
import sys
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.trial.accounts import Accounts
from bench.trial.faults import Fault, one_of_each, plan
from bench.trial.saboteur import Saboteur, Strike
from bench.trial.scene import scene_folder, suite_config
from bench.trial.trial import Trial, tell
from triptych.supervisor import Suite


@dataclass(frozen=True)
class Options:
    """`one_of_each`: every kind of fault once, in place of a plan for so many minutes."""

    minutes: float = 20.0
    seed: int = 1
    gap_s: float = 9.0
    customers: int = 6
    long_customers: int = 2
    long_steps: int = 800
    denoisers: int = 2
    settle_s: float = 300.0
    one_of_each: bool = False


async def chaos(folder: Path, options: Options) -> dict[str, object]:
    """Run it; the figures."""
    config = suite_config(folder, denoisers=options.denoisers)
    async with Suite(config) as suite:
        trial = Trial(
            suite.address,
            suite.exchange,
            seed=options.seed,
            customers=options.customers,
            long_customers=options.long_customers,
            long_steps=options.long_steps,
        )
        await trial.prepare()
        saboteur = Saboteur(suite.processes, tell)
        began = time.monotonic()
        async with trial.open(options.settle_s):
            await saboteur.run(_plan(list(suite.processes), options))
    return report(options, trial, saboteur.strikes, time.monotonic() - began)


def _plan(names: Sequence[str], options: Options) -> list[Fault]:
    if options.one_of_each:
        return one_of_each(names, options.gap_s, options.seed)
    return plan(names, options.minutes * 60, options.gap_s, options.seed)


def report(options: Options, trial: Trial, strikes: Sequence[Strike], seconds: float) -> dict[str, object]:
    """The figures as they are printed."""
    long = long_jobs(trial.accounts, strikes)
    return {
        "benchmark": "chaos",
        "seed": options.seed,
        "seconds": round(seconds, 1),
        "sound": trial.accounts.sound and all(strike.back_s is not None for strike in strikes),
        **trial.accounts.summary(),
        "long": {"alone_s": trial.long_alone_s, **long},
        "faults": len(strikes),
        "by_kind": recoveries(trial.accounts, strikes),
    }


def long_jobs(accounts: Accounts, strikes: Sequence[Strike]) -> dict[str, object]:
    """Of the long jobs that ended while there were faults: how many each took, and how often each was started."""
    last_s = max((strike.at_s for strike in strikes), default=0.0)
    entries = [entry for entry in accounts.entries.values() if entry.order.long and entry.end]
    done = [entry for entry in entries if entry.ended_s <= last_s]
    faults = [sum(entry.accepted_s <= strike.at_s <= entry.ended_s for strike in strikes) for entry in done]
    return {
        "jobs": len(entries),
        "ended_under_faults": len(done),
        "fewest_faults": min(faults, default=None),
        "most_faults": max(faults, default=None),
        "most_attempts": max((entry.attempts for entry in entries), default=None),
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


def main() -> None:
    defaults = Options()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--minutes", type=float, default=defaults.minutes, help="of faults")
    parser.add_argument("--seed", type=int, default=defaults.seed, help="of orders and faults")
    parser.add_argument("--gap-s", type=float, default=defaults.gap_s, help="between two faults, on average")
    parser.add_argument("--customers", type=int, default=defaults.customers)
    parser.add_argument("--long-customers", type=int, default=defaults.long_customers)
    parser.add_argument("--long-steps", type=int, default=defaults.long_steps, help="of a long job")
    parser.add_argument("--denoisers", type=int, default=defaults.denoisers)
    parser.add_argument("--settle-s", type=float, default=defaults.settle_s, help="bound of the wait at the end")
    parser.add_argument("--keep", type=Path, help="folder for models, logs and stores, which then stay")
    settings = vars(parser.parse_args())
    as_json, keep = settings.pop("json"), settings.pop("keep")
    with scene_folder(keep) as folder:
        result = asyncio.run(chaos(folder, Options(**settings)))
    print(json.dumps(result) if as_json else "\n".join(f"{name:20} {value}" for name, value in result.items()))
    sys.exit(not result["sound"])


if __name__ == "__main__":
    main()
