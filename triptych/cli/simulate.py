"""`triptych simulate` and `plan`: the router's scheduler on a virtual clock. Needs no suite."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triptych.cli.failures import EXIT_BAD_INPUT, EXIT_REFUSED, Failure
from triptych.cli.simulate_options import (
    add_behaviour,
    add_jobs,
    add_policy,
    read_fleet,
    read_jobs,
    read_policies,
    read_scheduler,
)
from triptych.cli.tally import Tally
from triptych.cli.terminal import Terminal

if TYPE_CHECKING:
    from services.router.simulate.pricing import Pricing


def register(commands: Any, shared: argparse.ArgumentParser) -> None:
    """Add the commands."""
    simulate = commands.add_parser(
        "simulate",
        parents=[shared],
        help="try policies and fleets on a workload, in virtual time",
        description="Runs the router's own scheduler over a workload, with modelled workers, in virtual time. The same "
        "arguments give the same bytes.",
    )
    add_jobs(simulate)
    add_policy(simulate)
    add_behaviour(simulate)
    simulate.add_argument(
        "--plot", type=Path, metavar="FILE.svg|png", help="draw delays and workers (needs matplotlib)"
    )
    simulate.set_defaults(run=run_simulate)
    plan = commands.add_parser(
        "plan",
        parents=[shared],
        help="find the smallest fleet that holds what you ask",
        description="Simulates fleets, in one pool and in a pool for each kind of jobs, and names the one with the "
        "fewest cards that holds every --slo.",
    )
    add_jobs(plan)
    add_policy(plan)
    add_behaviour(plan)
    plan.add_argument(
        "--slo",
        action="append",
        required=True,
        metavar='"KIND pNN [latency|wait|delay|stretch] < LIMIT"',
        help='as in "image p99 < 10s"; latency, from arrival to end, if none is named; may be repeated',
    )
    plan.add_argument("--max-cards", type=int, default=64, metavar="N", help="the largest fleet (default: 64 cards)")
    plan.add_argument(
        "--group-sizes",
        default="1",
        metavar="N[,N…]",
        help="cards that may work on one request together, of 1, 2, 4 and 8 (default: 1)",
    )
    plan.set_defaults(run=run_plan)


async def run_simulate(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run the workload under each policy, and show what came of it."""
    from services.router.simulate.estimate_errors import estimate_errors
    from services.router.simulate.plot import check_path, draw
    from services.router.simulate.report import report
    from services.router.simulate.simulation import simulate
    from services.router.simulate.table import errors_line, summary

    with _bad_input():
        if args.plot is not None:
            check_path(args.plot)
        fleet = read_fleet(args)
        jobs = read_jobs(args, fleet.card_count)
        policies, config = read_policies(args), read_scheduler(args)
        runs = []
        with Tally("", len(jobs) * len(policies)) as tally:
            for policy in policies:
                tally.say(policy.name)
                runs.append(
                    simulate(
                        jobs,
                        policy,
                        fleet,
                        pricing=_pricing(args),
                        seed=args.seed,
                        record_spans=args.plot is not None,
                        on_job=tally.advance,
                        config=config,
                    )
                )
        if args.plot is not None:
            draw(runs, args.plot)
    reports = [report(run) for run in runs]
    errors = estimate_errors(jobs) if args.trace else None
    for one in reports if errors else ():
        one["estimate_errors_s"] = errors
    terminal.emit(reports[0] if len(reports) == 1 else {"runs": reports})
    terminal.say(summary(reports))
    if errors:
        terminal.say(f"\n{errors_line(errors)}")
    return 0


async def run_plan(args: argparse.Namespace, terminal: Terminal) -> int:
    """Search for the fleet, and show it with what it did."""
    from services.router.simulate.plan import PlanError, Planner
    from services.router.simulate.report import report
    from services.router.simulate.simulation import Run, simulate
    from services.router.simulate.slo import parse_slo
    from services.router.simulate.table import summary

    with _bad_input():
        slos = [parse_slo(text) for text in args.slo]
        sizes = [int(text) for text in args.group_sizes.split(",")]
        fleet = read_fleet(args)
        jobs = read_jobs(args, fleet.card_count)
        policies, config = read_policies(args), read_scheduler(args)
        if len(policies) > 1:
            raise ValueError("plan for one policy at a time")
        with Tally("trying fleets", None) as tally:

            def run_fleet(some: Any, candidate: Any) -> Run:
                tally.say(candidate.words)
                pricing = _pricing(args)
                return simulate(
                    some,
                    policies[0],
                    candidate,
                    pricing=pricing,
                    seed=args.seed,
                    on_job=tally.advance,
                    config=config,
                )

            try:
                found = Planner(jobs, slos, policies[0], fleet, run_fleet).find(sizes, args.max_cards)
            except PlanError as error:
                raise Failure(str(error), EXIT_REFUSED) from error
    chosen = found.run.fleet
    measured = {slo.text: round(slo.measure(found.run.outcomes), 9) for slo in slos}
    pools = [{"kind": pool.kind, "workers": pool.workers, "cards": pool.cards} for pool in chosen.sized_pools]
    result = report(found.run)
    terminal.emit(
        {"cards": chosen.card_count, "pools": pools, "slos": measured, "tried": found.tried, "report": result}
    )
    cards = f"{chosen.card_count} card{'s' if chosen.card_count > 1 else ''}"
    terminal.say(f"{cards}: {chosen.words} (of {found.tried} fleets tried)")
    for text, value in measured.items():
        terminal.say(f"  {text}: {value:,.2f}")
    terminal.say(f"\n{summary([result])}")
    return 0


@contextmanager
def _bad_input() -> Iterator[None]:
    """What cannot be read or drawn, or makes no sense, ends the command with its words."""
    try:
        yield
    except ValueError as error:
        raise Failure(str(error), EXIT_BAD_INPUT) from error


def _pricing(args: argparse.Namespace) -> "Pricing":
    """What the router knows of the jobs before they run; anew for each run."""
    from random import Random

    from services.router.simulate.pricing import ExactPricing, LearntPricing, NoisyPricing

    if args.trace is not None and not args.exact_estimates:
        return LearntPricing()
    if args.estimate_error < 0:
        raise ValueError("--estimate-error must be 0 or more")
    return (
        NoisyPricing(args.estimate_error, Random(f"estimates {args.seed}")) if args.estimate_error else ExactPricing()
    )
