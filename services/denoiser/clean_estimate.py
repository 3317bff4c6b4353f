"""What a sampler takes the clean sample for: read from its own last step, without a forward of its own.

A sampler's sample is `α · clean + σ · noise`; the network tells the noise, the velocity or the clean sample, and each
step estimates the clean one on its way. Finishing early returns that estimate; a preview shows it.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import diffusers
import torch

# Fields of a step's output in which samplers of diffusers hand their estimate out.
_OWN_FIELDS = ("pred_original_sample", "denoised")
# Samplers whose `model_outputs` are estimates of the clean sample, by their `algorithm_type`; UniPC has `predict_x0`.
_DATA_ALGORITHMS = ("dpmsolver++", "sde-dpmsolver++")
# `sample = (1 - σ) · clean + σ · noise`, and the network tells `noise - clean`. Their configs name no prediction type.
FLOW_SAMPLERS = tuple(
    getattr(diffusers.schedulers, name)
    for name in (
        "FlowMatchEulerDiscreteScheduler",
        "FlowMatchHeunDiscreteScheduler",
        "FlowMatchLCMScheduler",
        "LTXEulerAncestralRFScheduler",
    )
)


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of a scheduler: what went in, and what came of it. `sigma` is its noise level, if there are any.

    `version` is its result's, which counts changes in place.
    """

    model_output: torch.Tensor
    timestep: Any
    sample: torch.Tensor
    sigma: Any
    output: Any
    version: int


class CleanEstimate:
    """Of one job's own scheduler: wraps its `step`, whose results stay the same bits.

    Make it when the loop begins, since a copy of a wrapped scheduler would step the original. `instead`, asked after
    each step, may give another result for it: the estimate, where the loop is to end.
    """

    def __init__(
        self, scheduler: Any, instead: Callable[["CleanEstimate"], torch.Tensor | None] = lambda estimate: None
    ) -> None:
        self._scheduler = scheduler
        self._last: _Step | None = None
        stock = scheduler.step

        # Blocks look at the signature to see what a scheduler takes.
        @functools.wraps(stock)
        def step(
            model_output: Any, timestep: Any, sample: Any, *more: Any, return_dict: bool = True, **named: Any
        ) -> Any:
            output = stock(model_output, timestep, sample, *more, return_dict=True, **named)
            version = output.prev_sample._version
            self._last = _Step(model_output, timestep, sample, _sigma(scheduler, named), output, version)
            if (other := instead(self)) is not None:
                output.prev_sample = other.to(output.prev_sample.dtype)
            return output if return_dict else output.to_tuple()

        scheduler.step = step

    def close(self) -> None:
        """Give the scheduler its own `step` back: while it has the wrapped one, each of the two keeps the other."""
        vars(self._scheduler).pop("step", None)

    @property
    def has_stepped(self) -> bool:
        """Whether the scheduler has made a step."""
        return self._last is not None

    def resulted_in(self, sample: Any) -> bool:
        """Whether this is the very result of the last step, and nobody has changed it since."""
        last = self._last
        return last is not None and sample is last.output.prev_sample and sample._version == last.version

    def value(self) -> torch.Tensor | None:
        """The clean sample as of the last step: shaped as the sampler's sample, float32 where the sampler works so.

        None before the first step, and for a sampler of a kind that is not known. A few element-wise operations, on
        the sample's device; nothing is computed unless it is asked for.
        """
        return None if self._last is None else _estimate(self._scheduler, self._last)


def _sigma(scheduler: Any, named: dict[str, Any]) -> Any:
    """The noise level of the step that was just made."""
    per_token = named.get("per_token_timesteps")
    if per_token is not None:
        return (per_token / scheduler.config.num_train_timesteps)[..., None]
    index, sigmas = getattr(scheduler, "step_index", None), getattr(scheduler, "sigmas", None)
    return None if index is None or sigmas is None else sigmas[index - 1]


def _estimate(scheduler: Any, step: _Step) -> torch.Tensor | None:
    for field in _OWN_FIELDS:
        own = getattr(step.output, field, None)
        if own is not None:
            return own  # type: ignore[no-any-return]
    config = scheduler.config
    if getattr(scheduler, "predict_x0", False) or config.get("algorithm_type") in _DATA_ALGORITHMS:
        return scheduler.model_outputs[-1]  # type: ignore[no-any-return]
    prediction = config.get("prediction_type")
    if isinstance(scheduler, FLOW_SAMPLERS) or prediction == "flow_prediction":
        return None if step.sigma is None else step.sample.float() - step.sigma * step.model_output
    return _from_noise_level(scheduler, step, prediction)


def _from_noise_level(scheduler: Any, step: _Step, prediction: str | None) -> torch.Tensor | None:
    """For samplers that tell nothing themselves: from `α` and `σ` of the step, `α² + σ² = 1`."""
    if prediction == "sample":
        return step.model_output
    if step.sigma is not None and hasattr(scheduler, "_sigma_to_alpha_sigma_t"):
        alpha, sigma = scheduler._sigma_to_alpha_sigma_t(step.sigma)
    elif hasattr(scheduler, "alphas_cumprod") and not hasattr(scheduler, "sigmas"):
        kept = scheduler.alphas_cumprod[int(step.timestep)]
        alpha, sigma = kept**0.5, (1 - kept) ** 0.5
    else:
        return None
    match prediction:
        case "epsilon":
            return (step.sample - sigma * step.model_output) / alpha  # type: ignore[no-any-return]
        case "v_prediction":
            return alpha * step.sample - sigma * step.model_output  # type: ignore[no-any-return]
    return None
