"""`triptych fleet` and `models`: what there is to run on, and what to run."""

import argparse
from typing import Any

from triptych.cli.fleet_table import (
    ERROR_HEADER,
    POOL_HEADER,
    WORKER_HEADER,
    error_cells,
    pool_cells,
    refusal_lines,
    sorted_workers,
    worker_cells,
)
from triptych.cli.fleet_watch import watch
from triptych.cli.remote import router
from triptych.cli.terminal import Terminal, enum_word, record, served_words
from triptych.v1 import router_service_pb2, worker_pb2


def register(commands: Any, shared: argparse.ArgumentParser) -> None:
    """Add the commands."""
    fleet = commands.add_parser("fleet", parents=[shared], help="show workers, pools and how good estimates are")
    fleet.add_argument("--watch", action="store_true", help="go on showing them, and the scheduler's decisions")
    fleet.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds between two pictures (1)")
    fleet.set_defaults(run=run_fleet)
    models = commands.add_parser("models", parents=[shared], help="show the catalog")
    models.set_defaults(run=run_models)


async def run_fleet(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show who works, on what, how much is left to do, and how good the estimates are."""
    async with router(args) as client:
        if args.watch:
            await watch(client, terminal, args.interval)
            return 0
        fleet = await client.fleet()
    terminal.emit(record(fleet))
    workers = sorted_workers(fleet)
    terminal.table(WORKER_HEADER, [worker_cells(worker) for worker in workers])
    for line in refusal_lines(workers):
        terminal.say(line)
    terminal.say()
    terminal.table(POOL_HEADER, [pool_cells(pool) for pool in fleet.pools])
    if fleet.estimate_errors:
        terminal.say()
        terminal.table(ERROR_HEADER, [error_cells(error) for error in fleet.estimate_errors])
    return 0


async def run_models(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show models with their defaults and limits."""
    async with router(args) as client:
        models = await client.models()
    terminal.emit([record(model) for model in models])
    terminal.table(
        ("MODEL", "KIND", "SERVED", "STEPS", "SIZE", "SIDES", "DESCRIPTION"),
        [
            (
                model.name,
                enum_word(worker_pb2.MediaKind.Name(model.media_kind)),
                served_words(model),
                str(model.defaults.step_count),
                f"{model.defaults.width}x{model.defaults.height}",
                f"{model.limits.min_side}-{model.limits.max_side}",
                model.description,
            )
            for model in models
        ],
    )
    for model in models:
        for why, worker_ids in _refusals(model).items():
            terminal.say(f"{model.name} is not served by {', '.join(worker_ids)}: {why}")
    return 0


def _refusals(model: router_service_pb2.Model) -> dict[str, list[str]]:
    """Who cannot serve a model, by reason."""
    found: dict[str, list[str]] = {}
    for refusal in model.refusals:
        found.setdefault(refusal.reason, []).append(refusal.worker_id)
    return found
