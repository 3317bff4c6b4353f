"""A finished output taken up again for more steps: its latents are given noise again, and the tail is run."""

from dataclasses import dataclass
from typing import Any

import torch

from services.denoiser.amendments import StepScale
from triptych.errors import Violation, invalid

# The latents as the loop left them, where the block hands out another shape of them: packed ones, say.
LOOP_LATENTS = "triptych.loop_latents"


@dataclass(frozen=True)
class Refinement:
    """Latents that have run `done` steps (in the job's count), and go on as if more had been asked for from the start.

    The noise that they get is drawn from a generator seeded with `seed`, in float32 on the CPU, as a loop's first noise
    is; how much, is what the sampler's levels say of the step to go on from.
    """

    latents: torch.Tensor
    done: int
    seed: int

    def first(self, scale: StepScale) -> int:
        """The loop's step to go on from: at least one is left."""
        return min(scale.loop_steps(self.done), scale.looped - 1)

    def begin(self, scheduler: Any, state: Any, first: int) -> None:
        """Put the loop's state where it would be before that step. Raises INVALID_FIELD if the latents do not fit."""
        if self.latents.shape != state.latents.shape:
            raise invalid(Violation("spec", "the kept latents are of another size than the job's"))
        if hasattr(scheduler, "set_begin_index"):
            scheduler.set_begin_index((scheduler.begin_index or 0) + first)
        noise = torch.randn(self.latents.shape, generator=torch.Generator().manual_seed(self.seed))
        clean = self.latents.to(state.latents.device, torch.float32)
        timestep = state.timesteps[first : first + 1]
        if hasattr(scheduler, "scale_noise"):
            noisy = scheduler.scale_noise(clean, timestep, noise.to(clean.device))
        else:
            noisy = scheduler.add_noise(clean, noise.to(clean.device), timestep)
        state.latents = noisy.to(state.latents.dtype)
