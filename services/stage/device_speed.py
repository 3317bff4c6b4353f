"""How fast a device is at what models do most: a guess for prices, until calls of a model were measured."""

import time

import torch

# Of what a bare matrix product does, models get about so much: attention, norms and copies come between.
_MODEL_SHARE = 0.6
_PATIENCE_S = 0.05


def device_tflops(device: torch.device) -> float:
    """TFLOP/s that models may get out of the device, from a few matrix products; takes about 50 ms."""
    side, dtype = (4096, torch.bfloat16) if device.type == "cuda" else (512, torch.float32)
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    best_s, until_s = float("inf"), time.perf_counter() + _PATIENCE_S
    # The first warms up.
    for attempt in range(1000):
        began_s = time.perf_counter()
        (left @ right)[0, 0].item()
        now_s = time.perf_counter()
        best_s = min(best_s, now_s - began_s) if attempt else best_s
        if now_s > until_s and attempt:
            break
    return _MODEL_SHARE * 2 * side**3 / best_s / 1e12
