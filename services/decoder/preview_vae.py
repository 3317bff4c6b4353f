"""A stand-in for a model's VAE, cheap enough to decode with at every step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, avg_pool3d

# Of a video: enough to see it move.
MAX_FRAMES = 8


class PreviewVae(torch.nn.Module):
    """What the stock decode blocks take for the VAE: they unpack and rescale the latents as for the real one.

    `vae` answers everything but `decode`: its configuration says how latents are scaled. `to_pixels` maps latents
    (b, channels, [frames,] h, w) to pixels (b, 3, [frames,] height, width), each cell to `cell_pixels` a side; pictures
    of twice `max_side` and more are made from pooled latents, videos from `MAX_FRAMES` latent frames at most.
    """

    def __init__(self, vae: Any, to_pixels: Callable[[Tensor], Tensor], cell_pixels: int, max_side: int) -> None:
        super().__init__()
        # Not as parts of this module: they are the model's own.
        self.__dict__.update(_vae=vae, _to_pixels=to_pixels)
        self._max_cells = max(1, max_side // cell_pixels)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_vae"], name)

    @property
    def dtype(self) -> torch.dtype:
        """Blocks convert a half-precision VAE, weights and all, if its configuration wants that: there is no need."""
        return torch.float32

    @property
    def device(self) -> torch.device:
        """Where the real one is."""
        return torch.device(self.__dict__["_vae"].device)

    def to(self, *args: Any, **kwargs: Any) -> "PreviewVae":
        """Stays as it is, and so does the real one."""
        return self

    def decode(self, latents: Tensor, *_: Any, return_dict: bool = True, **__: Any) -> Any:
        """Pixels, -1 to 1, as the real one would give them, but fewer and less exact."""
        pixels = self.__dict__["_to_pixels"](pooled(picked(latents.float()), self._max_cells))
        return _Decoded(pixels) if return_dict else (pixels,)


class _Decoded:
    def __init__(self, sample: Tensor) -> None:
        self.sample = sample


def picked(latents: Tensor) -> Tensor:
    """At most `MAX_FRAMES` of a video's latents (b, channels, frames, h, w), the first and the last among them."""
    if latents.ndim != 5 or latents.shape[2] <= MAX_FRAMES:
        return latents
    return latents[:, :, torch.linspace(0, latents.shape[2] - 1, MAX_FRAMES).round().long()]


def pooled(latents: Tensor, max_cells: int) -> Tensor:
    """Averaged over squares, the largest that leave at least `max_cells` on the longer side."""
    size = min(max(latents.shape[-2:]) // max_cells, *latents.shape[-2:])
    if size <= 1:
        return latents
    return avg_pool3d(latents, (1, size, size)) if latents.ndim == 5 else avg_pool2d(latents, size)


def frame_by_frame(decode: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A decoder of pictures as one of videos too: frames are decoded as a batch of pictures."""

    def decode_all(latents: Tensor) -> Tensor:
        if latents.ndim == 4:
            return decode(latents)
        batch, _, frames = latents.shape[:3]
        pixels = decode(latents.movedim(2, 1).flatten(0, 1))
        return pixels.reshape(batch, frames, *pixels.shape[1:]).movedim(1, 2)

    return decode_all
