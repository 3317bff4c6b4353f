"""The noise levels that are left of a loop, spread anew over another number of steps.

Levels that were passed stay as they are, so that a multistep sampler's history keeps its meaning; the level that the
sample has now is the first of the new ones, and the end is the old end. In between the new levels follow the old
schedule's own curve: a sampler's timesteps are interpolated over their index, and its sigmas follow from them.
"""

from itertools import pairwise
from typing import Any

import diffusers
import numpy as np
import torch

from services.denoiser.clean_estimate import FLOW_SAMPLERS

Floats = np.ndarray[Any, np.dtype[np.float64]]

# Samplers that look the next timestep up in their list, or take it from a fixed stride.
_LISTED = (diffusers.LCMScheduler, diffusers.TCDScheduler, diffusers.DDPMScheduler)
_STRIDED = (diffusers.DDIMScheduler,)
# A last step this much shorter than the one before is a schedule's tail, and stays its last step.
_SHORT = 0.5


class Unspreadable(Exception):
    """A sampler whose levels cannot be spread anew, or not over so many steps."""


def respread(scheduler: Any, loop_timesteps: torch.Tensor, done: int, step_count: int) -> torch.Tensor:
    """Give the scheduler the levels of a loop of `step_count` steps of which `done` (1 or more) were run.

    Returns the loop's new timesteps; `loop_timesteps` are the old ones, the scheduler's own or (from a given image) the
    last of them. A sampler that knows whole timesteps only gets as many steps as fit, which may be fewer. Raises
    `Unspreadable`, and then nothing has changed.
    """
    own: torch.Tensor = scheduler.timesteps
    first = len(own) - len(loop_timesteps) + done
    left = step_count - done
    assert 0 < done < len(loop_timesteps)
    assert left > 0
    if getattr(scheduler, "order", 1) != 1 or hasattr(scheduler, "order_list"):
        raise Unspreadable(f"{type(scheduler).__name__} takes several forwards a step")
    if getattr(scheduler, "step_index", first) != first:
        raise Unspreadable(f"{type(scheduler).__name__} is not where its loop is")
    sigmas = getattr(scheduler, "sigmas", None)
    if sigmas is not None and len(sigmas) == len(own) + 1:
        _spread_sigmas(scheduler, first, left)
    elif isinstance(scheduler, _LISTED):
        _put(scheduler, first, _distinct(_spread(own[first:].double().numpy(force=True), 0.0, left)))
    elif isinstance(scheduler, _STRIDED):
        _spread_stride(scheduler, first, left)
    else:
        raise Unspreadable(f"levels of {type(scheduler).__name__} cannot be spread anew")
    tail = scheduler.timesteps[first:].to(loop_timesteps.device, loop_timesteps.dtype)
    return torch.cat([loop_timesteps[:done], tail])


def places(old_count: int, count: int) -> list[int]:
    """Which of `old_count` old steps each of `count` new ones falls into: for what a loop holds of each step."""
    return [index * old_count // count for index in range(count)]


def _spread_sigmas(scheduler: Any, first: int, left: int) -> None:
    sigmas = scheduler.sigmas.double().numpy(force=True)
    timesteps = scheduler.timesteps[first:].double().numpy(force=True)
    if isinstance(scheduler, FLOW_SAMPLERS) or scheduler.config.get("use_flow_sigmas"):
        levels = _spread(sigmas[first:-1], sigmas[-1], left)
        end = timesteps[-1] * sigmas[-1] / sigmas[-2]
        spread = np.interp(levels, sigmas[first:][::-1], np.append(timesteps, end)[::-1])
    else:
        train = _trained_sigmas(scheduler)
        spread = _spread(timesteps, 0.0, left)
        levels = np.interp(spread, np.arange(len(train)), train)
        levels[0] = sigmas[first]
        if not _falls([*levels, sigmas[-1]]):
            levels = _spread(sigmas[first:-1], sigmas[-1], left)
    if not _falls([*levels, sigmas[-1]]):
        raise Unspreadable(f"{left} steps do not fit between the levels {sigmas[first]:g} and {sigmas[-1]:g}")
    if not scheduler.timesteps.is_floating_point():
        spread = np.round(spread)
    tail = torch.from_numpy(np.append(levels, sigmas[-1])).to(scheduler.sigmas.device, scheduler.sigmas.dtype)
    tail[0] = scheduler.sigmas[first]
    scheduler.sigmas = torch.cat([scheduler.sigmas[:first], tail])
    _put(scheduler, first, spread)


def _trained_sigmas(scheduler: Any) -> Floats:
    """The level at each training timestep."""
    if not hasattr(scheduler, "alphas_cumprod") or scheduler.config.get("timestep_type") == "continuous":
        raise Unspreadable(f"timesteps of {type(scheduler).__name__} are no indices of training steps")
    kept = scheduler.alphas_cumprod.double().numpy(force=True)
    return np.sqrt((1 - kept) / kept)  # type: ignore[no-any-return]


def _spread_stride(scheduler: Any, first: int, left: int) -> None:
    """Each step goes down by the training steps over `num_inference_steps`: find the number that fits best."""
    now, trained = int(scheduler.timesteps[first]), int(scheduler.config.num_train_timesteps)
    for count in range(left, 0, -1):
        for strides in range(1, trained + 1):
            stride = trained // strides
            if (count - 1) * stride <= now < count * stride:
                _put(scheduler, first, now - stride * np.arange(count, dtype=np.float64))
                scheduler.num_inference_steps = strides
                return
            if now >= count * stride:
                break


def _spread(nodes: Floats, end: float, left: int) -> Floats:
    """`left` points from the first node towards `end`, along the curve that the nodes draw over their index."""
    count = len(nodes)
    curve = np.append(nodes, end)
    if count > 1 and left > 1 and nodes[-1] - end < _SHORT * (nodes[-2] - nodes[-1]):
        at = np.arange(left) * (count - 1) / (left - 1)
    else:
        at = np.arange(left) * count / left
    spread: Floats = np.interp(at, np.arange(count + 1), curve)
    return spread


def _distinct(timesteps: Floats) -> Floats:
    distinct: Floats = np.unique(np.round(timesteps))
    return distinct[::-1]


def _falls(levels: list[float]) -> bool:
    return all(after < before for before, after in pairwise(levels))


def _put(scheduler: Any, first: int, tail: Floats) -> None:
    own: torch.Tensor = scheduler.timesteps
    new = torch.from_numpy(tail.copy()).to(own.device, own.dtype)
    new[0] = own[first]
    scheduler.timesteps = torch.cat([own[:first], new])
    scheduler.num_inference_steps = len(scheduler.timesteps)
