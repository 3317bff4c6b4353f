"""What a job costs before anything was measured: the source document's price law, and tokens from shapes."""

from dataclasses import dataclass

from services.router.core.job import Stage
from services.router.estimates.quadratic import Quadratic

H100_TFLOPS = 450.0
"""Effective TFLOP/s of an H100 in the source document."""

UNKNOWN_TFLOP_PER_KTOKEN = 20.0
"""Of a model of which nothing is said and nothing could be counted: about that of FLUX."""


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
    """What of a job decides its price.

    `forwards_per_step` is 2 with classifier-free guidance, else 1; `attachment_count` pictures are encoded with it.
    """

    model: str
    width: int
    height: int
    step_count: int
    forwards_per_step: int = 1
    frame_count: int = 1
    output_count: int = 1
    attachment_count: int = 0

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
    """The prior of a model's price.

    A forward of `k` thousand tokens costs `forward_s` seconds and, on a device of `effective_tflops`, the time of
    `tflop + tflop_per_ktoken · k + tflop_per_ktoken2 · k²`; encoding costs `encode_s` a job, decoding
    `decode_s_per_megapixel` per 10⁶ pixels of each frame. `effective_tflops` None: whatever the device does. `load_s`
    is what it takes to get a stage of the model into memory.
    """

    grid: TokenGrid
    tflop_per_ktoken: float
    effective_tflops: float | None = H100_TFLOPS
    forward_s: float = 0.0
    encode_s: float = 0.0
    decode_s_per_megapixel: float = 0.0
    tflop: float = 0.0
    tflop_per_ktoken2: float = 0.0
    load_s: float = 0.0

    def tokens(self, shape: JobShape) -> int:
        return self.grid.tokens(shape.width, shape.height, shape.frame_count)

    def size(self, shape: JobShape, stage: Stage) -> int:
        """What a call's time goes by: tokens of a forward, pixels of a decoded output or of encoded attachments."""
        match stage:
            case Stage.ENCODE:
                return shape.width * shape.height * shape.attachment_count
            case Stage.DENOISE:
                return self.tokens(shape)
            case Stage.DECODE:
                return shape.width * shape.height * shape.frame_count

    def law(self, stage: Stage, device_tflops: float = H100_TFLOPS) -> Quadratic:
        """Seconds of one call by its `size`: an encode of a job, a forward, a decode of an output."""
        match stage:
            case Stage.ENCODE:
                return Quadratic(self.encode_s)
            case Stage.DENOISE:
                tflops = self.effective_tflops or device_tflops
                linear, square = self.tflop_per_ktoken / 1e3, self.tflop_per_ktoken2 / 1e6
                return Quadratic(self.forward_s + self.tflop / tflops, linear / tflops, square / tflops)
            case Stage.DECODE:
                return Quadratic(0.0, self.decode_s_per_megapixel / 1e6)

    def denoise_s(self, shape: JobShape) -> float:
        """Seconds of all forwards of all outputs."""
        return shape.forward_count * self.law(Stage.DENOISE).at(self.tokens(shape))

    def decode_s(self, shape: JobShape) -> float:
        """Seconds to decode all outputs."""
        return shape.megapixels * self.decode_s_per_megapixel
