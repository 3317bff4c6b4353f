"""What a forward of a model costs, counted once by its shapes and remembered by its fingerprint."""

import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
from diffusers.utils import logging as diffusers_logging

from services.denoiser.dry_run import DryRun
from services.stage.checkpoint import Checkpoint
from services.stage.token_count import token_count
from triptych.catalog import Defaults
from triptych.v1.job_pb2 import JobSpec
from triptych.v1.worker_pb2 import ForwardCost

log = structlog.get_logger()

# Of the model's usual side: so that the part that grows with the square of the tokens shows.
_SCALES = (0.5, 1.0, 2.0)
# Sides that every network takes.
_SIDE_STEP = 64


def forward_costs(checkpoint: Checkpoint, defaults: Defaults, cache: Path | None) -> list[ForwardCost]:
    """TFLOP of one forward over one sample at three sizes; none where it cannot be counted.

    Takes a fraction of a second for a small model, a few for a large one, and then nothing: `cache` is a folder.
    """
    sizes = [(_side(defaults.width, scale), _side(defaults.height, scale)) for scale in _SCALES]
    name = "-".join([checkpoint.fingerprint, *(f"{width}x{height}x{defaults.frame_count}" for width, height in sizes)])
    file = None if cache is None else cache / f"{name}.json"
    remembered = _read(file)
    if remembered is not None:
        return remembered
    began_s = time.monotonic()
    try:
        with _quiet():
            costs = _count(checkpoint, sizes, defaults)
    except Exception as error:  # noqa: BLE001 - whatever a family does without its weights: only the prior is missed
        log.info("forward_not_counted", model=checkpoint.name, why=repr(error)[:200])
        return []
    log.info("forward_counted", model=checkpoint.name, seconds=round(time.monotonic() - began_s, 2))
    _write(file, costs)
    return costs


def default_cache() -> Path | None:
    """Return where counts are remembered: `$XDG_CACHE_HOME/triptych/forward_costs`, by default below `~/.cache`.

    None for a user without a home: `HOME` is not set, and the system does not know the user.
    """
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return base / "triptych" / "forward_costs"


def _count(checkpoint: Checkpoint, sizes: list[tuple[int, int]], defaults: Defaults) -> list[ForwardCost]:
    dry_run = DryRun(checkpoint)
    counted: dict[int, float] = {}
    for width, height in sizes:
        spec = JobSpec(
            prompt="a picture",
            seed=0,
            step_count=2,
            guidance=defaults.guidance,
            width=width,
            height=height,
            frame_count=defaults.frame_count,
            output_count=1,
        )
        tokens = token_count(checkpoint.profile, spec.width, spec.height, max(1, spec.frame_count))
        if tokens not in counted:
            counted[tokens] = dry_run.forward_flop(spec) / 1e12
    return [ForwardCost(token_count=tokens, tflop=tflop) for tokens, tflop in counted.items()]


def _side(usual: int, scale: float) -> int:
    return round(max(usual, 2 * _SIDE_STEP) * scale / _SIDE_STEP) * _SIDE_STEP


def _read(file: Path | None) -> list[ForwardCost] | None:
    try:
        pairs = json.loads(file.read_text(encoding="utf-8")) if file is not None else None
        return None if pairs is None else [ForwardCost(token_count=tokens, tflop=tflop) for tokens, tflop in pairs]
    except (OSError, ValueError, TypeError):
        return None


def _write(file: Path | None, costs: list[ForwardCost]) -> None:
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
        partial.write_text(json.dumps([(cost.token_count, cost.tflop) for cost in costs]), encoding="utf-8")
        partial.rename(file)
    except OSError as error:
        log.info("forward_cost_not_remembered", why=str(error))


@contextmanager
def _quiet() -> Iterator[None]:
    """Diffusers logs every error with its traceback, as if a job had failed."""
    level = diffusers_logging.get_verbosity()
    diffusers_logging.set_verbosity(diffusers_logging.CRITICAL)
    try:
        yield
    finally:
        diffusers_logging.set_verbosity(level)
