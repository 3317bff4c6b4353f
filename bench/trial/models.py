"""The models of a trial: tiny checkpoints of stock families, and a video model whose jobs may be very long."""

import json
from pathlib import Path

from tests.tiny_checkpoints import make_tiny_checkpoints

# What a worker takes at most.
MAX_STEPS, MAX_FRAMES = 1000, 17
ROUTER = """
[[scheduler.pools]]
name = "all"
max_backlog_s = 600.0
max_job_s = 36000.0
"""


def write_models(folder: Path) -> Path:
    """Write the checkpoints and the catalog that names them; returns the catalog."""
    make_tiny_checkpoints(folder)
    _spread_steps(folder / "wan" / "scheduler" / "scheduler_config.json")
    catalog = folder / "models.toml"
    catalog.write_text(
        _entry("sdxl", "sdxl", "image", 1) + _entry("flux", "flux", "image", 1) + _entry("clip", "wan", "video", 9)
    )
    return catalog


def _spread_steps(scheduler: Path) -> None:
    """Spread the noise levels evenly: shifted, many steps share whole timesteps, which UniPC cannot take."""
    config = json.loads(scheduler.read_text())
    scheduler.write_text(json.dumps(config | {"flow_shift": 1.0}))


def write_router_config(folder: Path) -> Path:
    """One pool for all, roomy enough for everything that a trial's customers ask for; returns the file."""
    path = folder / "router.toml"
    path.write_text(ROUTER)
    return path


def _entry(name: str, checkpoint: str, kind: str, frames: int) -> str:
    return f"""
[models.{name}]
checkpoint = "{checkpoint}"
media_kind = "{kind}"
dtype = "float32"
[models.{name}.defaults]
step_count = 4
guidance = 3.0
width = 64
height = 64
frame_count = {frames}
fps = 8.0
[models.{name}.limits]
max_side = 512
max_step_count = {MAX_STEPS}
max_frame_count = {MAX_FRAMES if frames > 1 else 1}
[models.{name}.cost]
effective_tflops = 1.0
tflop_per_ktoken = 0.02
load_s = 0.5
"""
