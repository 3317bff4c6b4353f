"""Forwards counted without weights, for every family whose blocks need no picture."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import ModularPipeline
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from services.denoiser.dry_run import DryRun
from services.denoiser.forward_costs import forward_costs
from services.router.estimates.price import TokenGrid
from services.router.pricing import forward_law
from services.stage.checkpoint import Checkpoint
from services.stage.token_count import token_count
from triptych.catalog import Defaults
from triptych.v1.job_pb2 import JobSpec
from triptych.v1.worker_pb2 import ModelProfile

DEFAULTS = Defaults(width=128, height=128, guidance=3.0)


def checkpoint(folder: Path, name: str) -> Checkpoint:
    return Checkpoint(name, str(folder / name))


@pytest.mark.parametrize("name", ["sdxl", "flux", "sd3", "wan"])
def test_a_forward_is_counted_at_three_sizes(tiny_checkpoints: Path, tmp_path: Path, name: str) -> None:
    defaults = Defaults(width=128, height=128, guidance=3.0, frame_count=9 if name == "wan" else 1)
    costs = forward_costs(checkpoint(tiny_checkpoints, name), defaults, tmp_path)
    assert len(costs) == 3
    assert [cost.token_count for cost in costs] == sorted({cost.token_count for cost in costs})
    law = forward_law(costs)
    for cost in costs:
        # Wan only attends to its text tokens, which are counted all the same: most of what there is at such sizes.
        assert law.at(cost.token_count) == pytest.approx(cost.tflop, rel=0.7 if name == "wan" else 0.1)


@pytest.mark.parametrize(("name", "network"), [("sdxl", "unet"), ("flux", "transformer")])
def test_it_is_what_the_forward_in_earnest_computes(tiny_checkpoints: Path, name: str, network: str) -> None:
    pipeline = ModularPipeline.from_pretrained(str(tiny_checkpoints / name))
    pipeline.load_components(dtype=torch.float32)
    forward, seen = getattr(pipeline, network).forward, []

    def counting(*args: Any, **kwargs: Any) -> Any:
        # Of the ways to attend on a CPU, the one that the counter knows.
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            result = forward(*args, **kwargs)
        seen.append(counter.get_total_flops())
        return result

    getattr(pipeline, network).forward = counting
    pipeline(prompt="a", num_inference_steps=1, width=128, height=128, output_type="latent")
    spec = JobSpec(prompt="a", seed=1, step_count=1, guidance=3.0, width=128, height=128, output_count=1)
    assert DryRun(checkpoint(tiny_checkpoints, name)).forward_flop(spec) == pytest.approx(seen[0], rel=0.01)


def test_counts_are_remembered_by_fingerprint(tiny_checkpoints: Path, tmp_path: Path) -> None:
    first = forward_costs(checkpoint(tiny_checkpoints, "flux"), DEFAULTS, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text("[[7, 0.5]]")
    (again,) = forward_costs(checkpoint(tiny_checkpoints, "flux"), DEFAULTS, tmp_path)
    assert (again.token_count, again.tflop) == (7, 0.5)
    file.write_text("nonsense")
    assert forward_costs(checkpoint(tiny_checkpoints, "flux"), DEFAULTS, tmp_path) == first


def test_what_cannot_be_counted_is_left_out(tiny_checkpoints: Path, tmp_path: Path) -> None:
    # Its blocks want a picture.
    assert forward_costs(checkpoint(tiny_checkpoints, "wan-i2v"), DEFAULTS, tmp_path) == []


@given(st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 200), st.sampled_from([1, 4, 8]))
def test_worker_and_router_count_tokens_alike(width: int, height: int, frames: int, temporal: int) -> None:
    profile = ModelProfile(vae_scale_factor=8, patch_size=2, vae_temporal_factor=temporal, text_token_count=512)
    grid = TokenGrid(8, 2, temporal, 512)
    assert token_count(profile, width, height, frames) == grid.tokens(width, height, frames)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user that the system does not know")
def test_a_user_without_a_home_has_no_place_to_remember() -> None:
    program = (
        "import os; from services.denoiser.forward_costs import default_cache; os.setuid(54321); print(default_cache())"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (run.returncode, run.stdout) == (0, "None\n"), run.stderr
