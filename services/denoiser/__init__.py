"""The denoiser: noise becomes latents, best-ranked job first, step by step."""
