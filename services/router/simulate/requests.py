"""The requests that the source document prices, by name."""

from services.router.core.job import StageSeconds
from services.router.estimates.price import JobShape, ModelCost, TokenGrid

_SDXL = TokenGrid(8, 2)
_FLUX = TokenGrid(8, 2, text_token_count=512)
_WAN = TokenGrid(8, 2, vae_temporal_factor=4, text_token_count=512)

SHAPES: dict[str, tuple[ModelCost, JobShape]] = {
    "sdxl-512": (ModelCost(_SDXL, 2.0), JobShape("sdxl", 512, 512, 20, 2)),
    "sdxl-1024": (ModelCost(_SDXL, 2.9), JobShape("sdxl", 1024, 1024, 30, 2)),
    "flux-1024": (ModelCost(_FLUX, 19.5), JobShape("flux", 1024, 1024, 28)),
    "flux-2048": (ModelCost(_FLUX, 24.7), JobShape("flux", 2048, 2048, 28)),
    "wan-480p": (ModelCost(_WAN, 90.0), JobShape("wan", 832, 480, 50, 2, frame_count=81)),
    "wan-720p": (ModelCost(_WAN, 175.0), JobShape("wan", 1280, 720, 50, 2, frame_count=81)),
}
"""What each costs, and its shape. TFLOP per 1,000 tokens grow with the resolution, hence a cost for each."""

REQUESTS: dict[str, StageSeconds] = {
    name: StageSeconds(0.0, cost.denoise_s(shape), 0.0) for name, (cost, shape) in SHAPES.items()
}
"""Seconds on one H100."""
