"""What a job costs before anything was measured: the source document's price law, and tokens from shapes."""

from dataclasses import dataclass

H100_TFLOPS = 450.0
"""Effective TFLOP/s of an H100 in the source document."""


def forward_seconds(tokens: int, tflop_per_ktoken: float, effective_tflops: float = H100_TFLOPS) -> float:
    """Device seconds of one forward of the denoising network over a sequence of `tokens`."""
    return tokens / 1000 * tflop_per_ktoken / effective_tflops


@dataclass(frozen=True, slots=True)
class TokenGrid:
    """How a model cuts pixels into tokens, from its own configuration.

    `vae_scale_factor` is pixels per side of a latent cell, `patch_size` latent cells per side of a token,
    `vae_temporal_factor` frames per latent frame after the first (0 or 1: every frame is one), `text_token_count` text
    tokens that join the sequence.
    """

    vae_scale_factor: int = 8
    patch_size: int = 2
    vae_temporal_factor: int = 1
    text_token_count: int = 0

    def tokens(self, width: int, height: int, frame_count: int = 1) -> int:
        """Sequence length of one forward. A part of a token at an edge counts as one."""
        side = self.vae_scale_factor * self.patch_size
        latent_frames = 1 + (frame_count - 1) // max(1, self.vae_temporal_factor)
        return latent_frames * -(-width // side) * -(-height // side) + self.text_token_count


@dataclass(frozen=True, slots=True)
class JobShape:
    """What of a job decides its price. `forwards_per_step` is 2 with classifier-free guidance, else 1."""

    model: str
    width: int
    height: int
    step_count: int
    forwards_per_step: int = 1
    frame_count: int = 1
    output_count: int = 1

    @property
    def forward_count(self) -> int:
        """Forwards over all outputs."""
        return self.step_count * self.forwards_per_step * self.output_count

    @property
    def megapixels(self) -> float:
        """10⁶ pixels over all frames of all outputs."""
        return self.width * self.height * self.frame_count * self.output_count / 1e6


@dataclass(frozen=True, slots=True)
class ModelCost:
    """The prior of a model's price on one kind of device.

    A forward costs `forward_s` and what the price law says; encoding costs `encode_s` a job, decoding
    `decode_s_per_megapixel` per 10⁶ pixels of each frame.
    """

    grid: TokenGrid
    tflop_per_ktoken: float
    effective_tflops: float = H100_TFLOPS
    forward_s: float = 0.0
    encode_s: float = 0.0
    decode_s_per_megapixel: float = 0.0

    def tokens(self, shape: JobShape) -> int:
        return self.grid.tokens(shape.width, shape.height, shape.frame_count)

    def denoise_s(self, shape: JobShape) -> float:
        """Seconds of all forwards of all outputs."""
        forward_s = self.forward_s + forward_seconds(self.tokens(shape), self.tflop_per_ktoken, self.effective_tflops)
        return shape.forward_count * forward_s

    def decode_s(self, shape: JobShape) -> float:
        """Seconds to decode all outputs."""
        return shape.megapixels * self.decode_s_per_megapixel
