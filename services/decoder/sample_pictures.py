"""Pictures to fit a linear map on: flat shapes on plain or shaded grounds, in any colour."""

import torch
from torch import Tensor
from torch.nn.functional import interpolate


def sample_picture(side: int, generator: torch.Generator) -> Tensor:
    """One picture, (3, side, side), -1 to 1: every second has a shaded ground."""
    ground = _colour(generator).expand(3, side, side).clone()
    if torch.rand((), generator=generator) < 0.5:
        shades = torch.rand(1, 3, 4, 4, generator=generator) - 0.5
        ground = ground + interpolate(shades, size=(side, side), mode="bicubic")[0]
    rows = torch.arange(side)[:, None] / side
    columns = torch.arange(side)[None, :] / side
    for index in range(3):
        row, column, size = (torch.rand(3, generator=generator) * torch.tensor([1.0, 1.0, 0.3])).tolist()
        down, across = (rows - row) / (size + 0.1), (columns - column) / (size + 0.1)
        inside = (down.abs().maximum(across.abs()) if index % 2 else down**2 + across**2) < 1
        ground = torch.where(inside, _colour(generator), ground)
    return ground.clamp(-1, 1)


def _colour(generator: torch.Generator) -> Tensor:
    """Any colour; every second one is pure: its parts all or nothing."""
    colour = torch.rand(3, generator=generator)
    if torch.rand((), generator=generator) < 0.5:
        colour = colour.round()
    return (2 * colour - 1)[:, None, None]
