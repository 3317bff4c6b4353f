"""The clean sample that a sampler predicts: right from the network's word alone, whatever the network tells."""

import copy
import inspect
from typing import Any

import diffusers
import pytest
import torch

from services.denoiser.clean_estimate import CleanEstimate

STEP_COUNT = 6
_VP = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}
_FREE = {"clip_sample": False}
_ALL = ("epsilon", "v_prediction", "sample")
SAMPLERS: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("EulerDiscreteScheduler", _ALL, {}),
    ("EulerAncestralDiscreteScheduler", ("epsilon", "v_prediction"), {}),
    ("HeunDiscreteScheduler", ("epsilon", "v_prediction"), {}),
    ("DDIMScheduler", _ALL, _FREE),
    ("DDPMScheduler", _ALL, _FREE),
    ("TCDScheduler", _ALL, {}),
    ("DPMSolverMultistepScheduler", (*_ALL, "flow_prediction"), {}),
    ("DPMSolverMultistepScheduler", _ALL, {"algorithm_type": "sde-dpmsolver++"}),
    ("DPMSolverMultistepScheduler", ("epsilon",), {"algorithm_type": "dpmsolver", "final_sigmas_type": "sigma_min"}),
    ("UniPCMultistepScheduler", (*_ALL, "flow_prediction"), {}),
    ("UniPCMultistepScheduler", ("epsilon",), {"predict_x0": False}),
    ("DEISMultistepScheduler", ("epsilon", "v_prediction"), {}),
    ("FlowMatchEulerDiscreteScheduler", ("flow",), {}),
    ("FlowMatchEulerDiscreteScheduler", ("flow",), {"stochastic_sampling": True}),
    ("FlowMatchHeunDiscreteScheduler", ("flow",), {}),
    ("FlowMatchLCMScheduler", ("flow",), {}),
]
CASES = [(name, kind, more) for name, kinds, more in SAMPLERS for kind in kinds]


def make(name: str, prediction: str, more: dict[str, Any]) -> Any:
    kind = getattr(diffusers, name)
    if prediction == "flow":
        scheduler = kind(**more)
    else:
        flow = {"use_flow_sigmas": True} if prediction == "flow_prediction" else {}
        scheduler = kind(prediction_type=prediction, **_VP, **flow, **more)
    scheduler.set_timesteps(STEP_COUNT)
    return scheduler


class Oracle:
    """A network that knows the clean sample: it tells whatever is to be told of any noisy one."""

    def __init__(self, scheduler: Any, prediction: str) -> None:
        self.scheduler = scheduler
        self.prediction = prediction
        self.clean = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1))
        self.noise = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(2))

    def noisy(self, timestep: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """A sample at this noise level, and the network's word of it."""
        alpha, sigma, variance = self._level(timestep)
        sample = alpha * self.clean + sigma * self.noise
        word = {
            "epsilon": self.noise,
            "sample": self.clean,
            "v_prediction": (self.noise * alpha - sigma * self.clean) / variance**0.5,
            "flow_prediction": self.noise - self.clean,
            "flow": self.noise - self.clean,
        }[self.prediction]
        return sample, word

    def _level(self, timestep: Any) -> tuple[Any, Any, Any]:
        scheduler, index = self.scheduler, list(self.scheduler.timesteps).index(timestep)
        if self.prediction.startswith("flow"):
            return 1 - scheduler.sigmas[index], scheduler.sigmas[index], 1.0
        if hasattr(scheduler, "_sigma_to_alpha_sigma_t"):
            return *scheduler._sigma_to_alpha_sigma_t(scheduler.sigmas[index]), 1.0
        if hasattr(scheduler, "sigmas"):
            # The velocity of `clean + σ · noise` is that of the sample scaled to unit variance.
            sigma = scheduler.sigmas[index]
            return 1.0, sigma, sigma**2 + 1
        kept = scheduler.alphas_cumprod[int(timestep)]
        return kept**0.5, (1 - kept) ** 0.5, 1.0


@pytest.mark.parametrize(("name", "prediction", "more"), CASES, ids=[f"{n}-{p}-{m or ''}" for n, p, m in CASES])
def test_a_network_that_knows_is_understood(name: str, prediction: str, more: dict[str, Any]) -> None:
    scheduler = make(name, prediction, more)
    estimate = CleanEstimate(scheduler)
    assert estimate.value() is None
    oracle = Oracle(scheduler, prediction)
    generator = torch.Generator().manual_seed(3)
    for timestep in scheduler.timesteps[:3]:
        sample, word = oracle.noisy(timestep)
        scheduler.scale_model_input(sample, timestep) if hasattr(scheduler, "scale_model_input") else None
        scheduler.step(word, timestep, sample, **drawing(scheduler, generator), return_dict=False)
        value = estimate.value()
        assert value is not None
        torch.testing.assert_close(value, oracle.clean, atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize(("name", "prediction", "more"), CASES, ids=[f"{n}-{p}-{m or ''}" for n, p, m in CASES])
def test_steps_stay_the_same_bits(name: str, prediction: str, more: dict[str, Any]) -> None:
    stock = make(name, prediction, more)
    watched = copy.deepcopy(stock)
    estimate = CleanEstimate(watched)
    assert steps(stock) == steps(watched)
    assert estimate.value() is not None


def test_lcm_gives_its_denoised_sample() -> None:
    scheduler = make("LCMScheduler", "epsilon", {"clip_sample": False})
    estimate = CleanEstimate(scheduler)
    sample = torch.randn(1, 4, 8, 8)
    [timestep] = scheduler.timesteps[:1]
    _, denoised = scheduler.step(sample, timestep, sample, return_dict=False)
    assert torch.equal(estimate.value(), denoised)  # type: ignore[arg-type]


def test_the_step_that_ends_returns_the_estimate() -> None:
    scheduler = make("DPMSolverMultistepScheduler", "epsilon", {})
    ending = False
    CleanEstimate(scheduler, lambda estimate: estimate.value() if ending else None)
    oracle = Oracle(scheduler, "epsilon")
    for timestep in scheduler.timesteps[:2]:
        sample, word = oracle.noisy(timestep)
        [result] = scheduler.step(word, timestep, sample, return_dict=False)
        assert not torch.allclose(result, oracle.clean, atol=0.1)
    ending = True
    sample, word = oracle.noisy(scheduler.timesteps[2])
    [result] = scheduler.step(word, scheduler.timesteps[2], sample, return_dict=False)
    torch.testing.assert_close(result, oracle.clean, atol=2e-3, rtol=1e-3)


def steps(scheduler: Any) -> list[bytes]:
    generator = torch.Generator().manual_seed(0)
    sample, results = torch.randn(1, 4, 8, 8, generator=generator), []
    for timestep in scheduler.timesteps[:4]:
        scheduler.scale_model_input(sample, timestep) if hasattr(scheduler, "scale_model_input") else None
        sample = scheduler.step(sample * 0.9, timestep, sample, **drawing(scheduler, generator), return_dict=False)[0]
        results.append(sample.numpy().tobytes())
    return results


def drawing(scheduler: Any, generator: torch.Generator) -> dict[str, Any]:
    return {"generator": generator} if "generator" in inspect.signature(scheduler.step).parameters else {}
