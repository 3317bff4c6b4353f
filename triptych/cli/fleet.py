"""`triptych fleet` and `models`: what there is to run on, and what to run."""

import argparse
from typing import Any

from google.protobuf.duration_pb2 import Duration

from triptych.cli.remote import router
from triptych.cli.terminal import Terminal, enum_word, record, seconds, served_words, stage_word
from triptych.v1 import router_service_pb2, worker_pb2


def register(commands: Any, shared: argparse.ArgumentParser) -> None:
    """Add the commands."""
    fleet = commands.add_parser("fleet", parents=[shared], help="show workers and pools")
    fleet.set_defaults(run=run_fleet)
    models = commands.add_parser("models", parents=[shared], help="show the catalog")
    models.set_defaults(run=run_models)


async def run_fleet(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show who works, on what, and how much is left to do."""
    async with router(args) as client:
        fleet = await client.fleet()
    terminal.emit(record(fleet))
    terminal.table(
        ("WORKER", "STAGE", "STATE", "DEVICE", "POOL", "MODELS", "RUNS", "BACKLOG", "HEARTBEAT"),
        [_worker(worker) for worker in sorted(fleet.workers, key=lambda worker: (worker.stage, worker.worker_id))],
    )
    terminal.say()
    terminal.table(
        ("POOL", "WORKERS", "QUEUED", "RUNNING", "BACKLOG", "LIMIT"),
        [
            (
                pool.name,
                str(pool.worker_count),
                str(pool.queued_count),
                str(pool.running_count),
                _time(pool.backlog),
                _time(pool.max_backlog),
            )
            for pool in fleet.pools
        ],
    )
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
    return 0


def _worker(worker: router_service_pb2.Worker) -> tuple[str, ...]:
    return (
        worker.worker_id,
        stage_word(worker.stage),
        enum_word(worker_pb2.WorkerState.Name(worker.state)),
        worker.device,
        worker.pool,
        ", ".join(worker.models),
        ", ".join(f"{job.job_id} {job.fraction:.0%}" for job in worker.active_jobs),
        _time(worker.backlog),
        _time(worker.heartbeat_age),
    )


def _time(duration: Duration) -> str:
    return seconds(duration.ToNanoseconds() / 1e9)
