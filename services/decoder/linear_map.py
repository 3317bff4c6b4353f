"""Latent channels to red, green and blue: one matrix, fitted by least squares."""

from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from services.stage.tensors import from_bundle, to_bundle
from triptych.exchange import ExchangeError, pack, unpack

# Of the mean square of a channel: keeps channels that hardly vary in the fit from getting weights out of proportion.
RIDGE = 1e-4


class LinearMap(torch.nn.Module):
    """Latents (b, channels, [frames,] h, w) to pixels (b, 3, [frames,] h, w), -1 to 1, one a latent cell.

    `weights` is (3, channels + 1): the last column is what a latent of zeros looks like.
    """

    weights: Tensor

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.register_buffer("weights", weights.float())

    def forward(self, latents: Tensor) -> Tensor:
        weights = self.weights
        pixels = latents.float().movedim(1, -1) @ weights[:, :-1].T + weights[:, -1]
        return pixels.movedim(-1, 1).clamp(-1, 1)

    def to_bytes(self) -> bytes:
        """As it is stored."""
        return pack(to_bundle({"weights": (self.weights, "")}))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The map that was stored. Raises `ValueError` for anything else."""
        try:
            weights, _ = from_bundle(unpack(data), torch.device("cpu"))["weights"]
        except (ExchangeError, KeyError) as error:
            raise ValueError(f"not a linear map: {error}") from error
        if not isinstance(weights, Tensor) or weights.ndim != 2 or len(weights) != 3:
            raise ValueError("not a linear map: its weights are of another shape")
        return cls(weights)


@dataclass
class LinearFit:
    """Gathers pairs of latents and pixels, of which only two small sums are kept, and solves for the map."""

    _squares: Tensor | None = field(default=None)
    _products: Tensor | None = field(default=None)

    def add(self, latents: Tensor, pixels: Tensor) -> None:
        """Latents (b, channels, [frames,] h, w), and what the VAE decodes them to: (b, 3, [frames,] height, width)."""
        cells = interpolate(pixels.float().clamp(-1, 1), latents.shape[2:], mode="area")
        inputs = _rows(latents)
        inputs = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1)
        squares, products = inputs.T @ inputs, inputs.T @ _rows(cells)
        self._squares = squares if self._squares is None else self._squares + squares
        self._products = products if self._products is None else self._products + products

    def solve(self) -> LinearMap:
        """The map with the least squared error over all pairs. Raises `ValueError` if there was none."""
        if self._squares is None or self._products is None:
            raise ValueError("nothing to fit")
        ridge = RIDGE * self._squares.diagonal()
        ridge[-1] = 0.0
        solution = torch.linalg.lstsq(self._squares + torch.diag(ridge), self._products, driver="gelsd").solution
        return LinearMap(solution.T)


def _rows(values: Tensor) -> Tensor:
    """One row a cell, one column a channel; float64, on the CPU."""
    return values.movedim(1, -1).reshape(-1, values.shape[1]).double().cpu()
