"""The sequence length of a forward, by the geometry that the worker announces."""

from triptych.v1.worker_pb2 import ModelProfile


def token_count(profile: ModelProfile, width: int, height: int, frame_count: int = 1) -> int:
    """Tokens of one sample of this size, as the router counts them (its `TokenGrid`)."""
    side = profile.vae_scale_factor * profile.patch_size
    latent_frames = 1 + (frame_count - 1) // max(1, profile.vae_temporal_factor)
    return int(latent_frames * -(-width // side) * -(-height // side) + profile.text_token_count)
