"""The decoder: latents become pictures and videos."""
