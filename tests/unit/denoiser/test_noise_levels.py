"""Remaining noise levels spread anew: from the level that the sample has now to the end, over any number of steps."""

import copy
from typing import Any

import diffusers
import numpy as np
import pytest
import torch

from services.denoiser.noise_levels import Unspreadable, places, respread

_VP = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}
_FLOW = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}
WITH_SIGMAS: list[tuple[str, dict[str, Any]]] = [
    ("EulerDiscreteScheduler", {**_VP, "timestep_spacing": "leading", "steps_offset": 1}),
    ("EulerDiscreteScheduler", {**_VP, "timestep_spacing": "trailing"}),
    ("EulerDiscreteScheduler", {**_VP, "use_karras_sigmas": True}),
    ("EulerAncestralDiscreteScheduler", _VP),
    ("DPMSolverMultistepScheduler", _VP),
    ("DPMSolverMultistepScheduler", {**_VP, "use_karras_sigmas": True, "algorithm_type": "sde-dpmsolver++"}),
    ("UniPCMultistepScheduler", _VP),
    ("UniPCMultistepScheduler", _FLOW),
    ("DEISMultistepScheduler", _VP),
    ("FlowMatchEulerDiscreteScheduler", {"shift": 3.0}),
    ("FlowMatchLCMScheduler", {"shift": 3.0}),
]
LISTED: list[tuple[str, dict[str, Any]]] = [
    ("LCMScheduler", _VP),
    ("TCDScheduler", _VP),
    ("DDPMScheduler", {**_VP, "timestep_spacing": "leading"}),
    ("DDIMScheduler", {**_VP, "steps_offset": 1}),
]
GRIDS = [(8, 3, 12), (8, 3, 4), (8, 7, 20), (20, 1, 50), (20, 12, 13), (4, 2, 3)]


def started(name: str, options: dict[str, Any], step_count: int, done: int) -> Any:
    """A scheduler in the middle of its loop."""
    scheduler = getattr(diffusers, name)(**options)
    scheduler.set_timesteps(step_count)
    run(scheduler, scheduler.timesteps[:done])
    return scheduler


def run(scheduler: Any, timesteps: torch.Tensor, sample: torch.Tensor | None = None) -> torch.Tensor:
    if sample is None:
        sample = torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(0))
    for timestep in timesteps:
        if hasattr(scheduler, "scale_model_input"):
            scheduler.scale_model_input(sample, timestep)
        sample = scheduler.step(sample * 0.5, timestep, sample, return_dict=False)[0]
    return sample


@pytest.mark.parametrize(("old", "done", "new"), GRIDS)
@pytest.mark.parametrize(("name", "options"), WITH_SIGMAS, ids=str)
def test_levels_fall_from_the_present_one_to_the_old_end(
    name: str, options: dict[str, Any], old: int, done: int, new: int
) -> None:
    scheduler = started(name, options, old, done)
    before = copy.deepcopy(scheduler)
    timesteps = respread(scheduler, scheduler.timesteps, done, new)
    assert len(timesteps) == new == len(scheduler.timesteps) == len(scheduler.sigmas) - 1
    assert torch.equal(timesteps[: done + 1], before.timesteps[: done + 1])
    assert torch.equal(scheduler.sigmas[: done + 1], before.sigmas[: done + 1])
    assert scheduler.sigmas[-1] == before.sigmas[-1]
    assert (scheduler.sigmas.diff() < 0).all()
    assert (timesteps.diff() <= 0).all()
    assert timesteps.dtype == before.timesteps.dtype
    assert scheduler.sigmas.dtype == before.sigmas.dtype
    assert run(scheduler, timesteps[done:]).isfinite().all()


@pytest.mark.parametrize(("name", "options"), WITH_SIGMAS, ids=str)
def test_as_many_steps_as_before_are_the_same_levels(name: str, options: dict[str, Any]) -> None:
    scheduler = started(name, options, 10, 4)
    before = copy.deepcopy(scheduler)
    respread(scheduler, scheduler.timesteps, 4, 10)
    # Karras levels of integer timesteps move a little: the network is told the rounded ones.
    torch.testing.assert_close(scheduler.sigmas, before.sigmas, atol=0.02, rtol=0.05)
    torch.testing.assert_close(scheduler.timesteps, before.timesteps, atol=1, rtol=0)


@pytest.mark.parametrize(("name", "options"), WITH_SIGMAS, ids=str)
def test_a_timestep_says_what_level_it_has(name: str, options: dict[str, Any]) -> None:
    scheduler = started(name, options, 6, 2)
    respread(scheduler, scheduler.timesteps, 2, 15)
    sigmas, timesteps = scheduler.sigmas[2:-1].double(), scheduler.timesteps[2:].double()
    if isinstance(scheduler, diffusers.FlowMatchEulerDiscreteScheduler | diffusers.FlowMatchLCMScheduler):
        torch.testing.assert_close(timesteps, sigmas * 1000, atol=1e-2, rtol=1e-4)
    elif scheduler.config.get("use_flow_sigmas"):
        torch.testing.assert_close(timesteps, sigmas * 1000, atol=1.5, rtol=0)
    else:
        kept = scheduler.alphas_cumprod.double()
        train = ((1 - kept) / kept).sqrt().numpy()
        said = np.interp(timesteps.numpy(), np.arange(len(train)), train)
        np.testing.assert_allclose(said, sigmas.numpy(), rtol=0.05, atol=0.02)


@pytest.mark.parametrize(("old", "done", "new"), GRIDS)
@pytest.mark.parametrize(("name", "options"), LISTED, ids=str)
def test_samplers_that_know_timesteps_only(name: str, options: dict[str, Any], old: int, done: int, new: int) -> None:
    scheduler = started(name, options, old, done)
    before = scheduler.timesteps.clone()
    timesteps = respread(scheduler, scheduler.timesteps, done, new)
    # As many as there are whole timesteps, or strides, down to the end.
    assert len(timesteps) == new or name == "DDIMScheduler" or len(timesteps) == done + 1 + before[done]
    assert done < len(timesteps) <= new
    assert torch.equal(timesteps[: done + 1], before[: done + 1])
    assert (timesteps.diff() < 0).all()
    assert timesteps[-1] >= 0
    if name == "DDIMScheduler":
        stride = scheduler.config.num_train_timesteps // scheduler.num_inference_steps
        assert set(timesteps[done:].diff().tolist()) <= {-stride}
        assert timesteps[-1] - stride < 0
    else:
        assert scheduler.num_inference_steps == len(timesteps)
    assert run(scheduler, timesteps[done:]).isfinite().all()


@pytest.mark.parametrize("name", ["FlowMatchEulerDiscreteScheduler", "EulerDiscreteScheduler", "LCMScheduler"])
def test_a_loop_that_began_in_the_middle(name: str) -> None:
    """From a given image: the loop has the last of the scheduler's timesteps."""
    scheduler = getattr(diffusers, name)()
    scheduler.set_timesteps(10)
    scheduler.set_begin_index(4)
    loop = scheduler.timesteps[4:]
    run(scheduler, loop[:2])
    timesteps = respread(scheduler, loop, 2, 9)
    assert len(timesteps) == 9
    assert len(scheduler.timesteps) == 13
    assert torch.equal(timesteps, scheduler.timesteps[4:])
    assert run(scheduler, timesteps[2:]).isfinite().all()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("HeunDiscreteScheduler", "several forwards"),
        ("DPMSolverSinglestepScheduler", "several forwards"),
        ("PNDMScheduler", "cannot be spread"),
        ("EDMEulerScheduler", "no indices"),
    ],
)
def test_other_samplers_say_no_and_stay_as_they_are(name: str, why: str) -> None:
    scheduler = getattr(diffusers, name)()
    scheduler.set_timesteps(8)
    if getattr(scheduler, "step_index", 2) is None:
        scheduler._step_index = 2
    before = scheduler.timesteps.clone()
    with pytest.raises(Unspreadable, match=why):
        respread(scheduler, scheduler.timesteps, 2, 12)
    assert torch.equal(scheduler.timesteps, before)


def test_more_steps_than_there_are_timesteps_are_as_many_as_fit() -> None:
    scheduler = started("LCMScheduler", _VP, 8, 7)
    left = int(scheduler.timesteps[7])
    assert len(respread(scheduler, scheduler.timesteps, 7, 300)) == 7 + left + 1


@pytest.mark.parametrize(("old", "done", "new"), [(20, 1, 30), (10, 4, 20), (50, 10, 15), (8, 3, 4)])
def test_a_stride_comes_close(old: int, done: int, new: int) -> None:
    scheduler = started("DDIMScheduler", _VP, old, done)
    assert new - 1 <= len(respread(scheduler, scheduler.timesteps, done, new)) <= new


def test_what_is_held_of_each_step_keeps_its_place() -> None:
    assert places(4, 4) == [0, 1, 2, 3]
    assert places(4, 2) == [0, 2]
    assert places(2, 5) == [0, 0, 0, 1, 1]
