"""Workers, pools and the estimates' errors as rows of a table."""

from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration

from triptych.cli.terminal import enum_word, seconds, stage_word
from triptych.durations import seconds_of
from triptych.v1 import router_service_pb2, worker_pb2

WORKER_HEADER = ("WORKER", "STAGE", "STATE", "DEVICE", "POOL", "MODELS", "RUNS", "BACKLOG", "PACE", "HEARTBEAT")
ERROR_HEADER = ("MODEL", "STAGE", "DEVICE", "MEASURED", "MEDIAN ERROR", "BIAS")
POOL_HEADER = ("POOL", "WORKERS", "TO BORROW", "QUEUED", "RUNNING", "BACKLOG", "LIMIT")


def sorted_workers(fleet: router_service_pb2.GetFleetResponse) -> list[router_service_pb2.Worker]:
    """By stage, then by name."""
    return sorted(fleet.workers, key=lambda worker: (worker.stage, worker.worker_id))


def worker_cells(worker: router_service_pb2.Worker) -> tuple[str, ...]:
    return (
        worker.worker_id,
        stage_word(worker.stage),
        enum_word(worker_pb2.WorkerState.Name(worker.state)),
        worker.device,
        worker.pool,
        ", ".join(worker.models),
        ", ".join(f"{job.job_id} {job.fraction:.0%}" for job in worker.active_jobs),
        _time(worker.backlog),
        f"x{worker.pace:.1f}",
        _time(worker.heartbeat_age),
    )


def refusal_lines(workers: Iterable[router_service_pb2.Worker]) -> list[str]:
    """What workers cannot serve, and why: a line for each model and reason."""
    whose: dict[tuple[str, str], list[str]] = {}
    for worker in workers:
        for refused in worker.refused_models:
            whose.setdefault((refused.name, refused.reason), []).append(worker.worker_id)
    return [f"{model} is not served by {', '.join(sorted(ids))}: {why}" for (model, why), ids in sorted(whose.items())]


def pool_cells(pool: router_service_pb2.Pool) -> tuple[str, ...]:
    return (
        pool.name,
        str(pool.worker_count),
        str(pool.borrowable_count),
        str(pool.queued_count),
        str(pool.running_count),
        _time(pool.backlog),
        _time(pool.max_backlog) if pool.HasField("max_backlog") else "",
    )


def error_cells(error: router_service_pb2.EstimateError) -> tuple[str, ...]:
    return (
        error.model,
        stage_word(error.stage),
        error.device,
        str(error.sample_count),
        f"{_time(error.median_error)} ({error.median_relative_error:.0%})",
        f"{error.bias:+.0%}",
    )


def _time(duration: Duration) -> str:
    return seconds(seconds_of(duration))
