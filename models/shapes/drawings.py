"""Scenes of one or two flat shapes, and their pictures: the whole world that the `shapes` model knows.

A scene is one object with a place, or two objects with a relation, on a plain background. Pictures are drawn from
signed distances with anti-aliased edges, straight into float tensors in [-1, 1].
"""

import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

RESOLUTION = 96  # px, both sides
SHAPES = ("circle", "square", "triangle", "star", "cross")
COLOURS = {
    "red": (225, 25, 30),
    "orange": (255, 140, 0),
    "yellow": (255, 235, 30),
    "green": (20, 160, 50),
    "cyan": (30, 225, 235),
    "blue": (35, 70, 240),
    "purple": (140, 40, 190),
    "pink": (255, 130, 195),
}
BACKGROUNDS = {
    "white": (250, 250, 250),
    "black": (8, 8, 8),
    "gray": (128, 128, 128),
    "navy": (15, 20, 85),
    "beige": (225, 205, 165),
}
SIZES = {"small": 10.0, "medium": 14.0, "large": 19.5}  # half the side of the bounding square, px
PLACES = {"center": (48, 48), "top": (48, 24), "bottom": (48, 72), "left": (24, 48), "right": (72, 48)}  # x, y in px
RELATIONS = {  # centres of the first and second object, x, y in px
    "left of": ((24, 48), (72, 48)),
    "right of": ((72, 48), (24, 48)),
    "above": ((48, 24), (48, 72)),
    "below": ((48, 72), (48, 24)),
}
HELD_OUT_SHARE = 10  # one scene in this many is never trained on

_PLACE_JITTER = 3.0  # px
_ALONG_JITTER, _ACROSS_JITTER = 2.0, 5.0  # px, along and across the line that joins two objects
_SIZE_JITTER = 0.5  # px
_STAR_SCALE = 1.1  # a star fills little of its bounding square; drawn slightly larger it looks as large as the rest


@dataclass(frozen=True, slots=True)
class Thing:
    """One object: keys of SIZES, COLOURS and SHAPES."""

    size: str
    colour: str
    shape: str


@dataclass(frozen=True, slots=True)
class Scene:
    """What is in a picture: one thing and a key of PLACES, or two things and a key of RELATIONS."""

    things: tuple[Thing, ...]
    where: str
    background: str

    @property
    def caption(self) -> str:
        """The canonical prompt of this scene."""
        first, *others = [f"a {thing.size} {thing.colour} {thing.shape}" for thing in self.things]
        if others:
            where = f"{self.where} {others[0]}"
        else:
            where = {"center": "in the center", "left": "on the left", "right": "on the right"}.get(
                self.where, f"at the {self.where}"
            )
        return f"{first} {where} on a {self.background} background"

    @property
    def held_out(self) -> bool:
        """Whether this combination of all attributes is kept out of training."""
        return zlib.crc32(self.caption.encode()) % HELD_OUT_SHARE == 0


def sample_scene(rng: random.Random, pair_share: float, held_out: bool = False) -> Scene:
    """A scene of the training (or the held-out) combinations; a share of `pair_share` in [0, 1] has two things."""
    while True:
        count = 2 if rng.random() < pair_share else 1
        things = tuple(
            Thing(rng.choice(list(SIZES)), rng.choice(list(COLOURS)), rng.choice(SHAPES)) for _ in range(count)
        )
        where = rng.choice(list(RELATIONS if count == 2 else PLACES))
        scene = Scene(things, where, rng.choice(list(BACKGROUNDS)))
        if scene.held_out == held_out:
            return scene


def layout(scene: Scene, rng: random.Random) -> list[tuple[float, float, float]]:
    """Centre x, centre y and half side (px) of each thing, with jitter."""
    centres: Sequence[tuple[float, float]]
    if len(scene.things) == 1:
        centres, jitter_x, jitter_y = [PLACES[scene.where]], _PLACE_JITTER, _PLACE_JITTER
    else:
        centres = RELATIONS[scene.where]
        sideways = scene.where in ("left of", "right of")
        jitter_x, jitter_y = (_ALONG_JITTER, _ACROSS_JITTER) if sideways else (_ACROSS_JITTER, _ALONG_JITTER)
    return [
        (
            x + rng.uniform(-jitter_x, jitter_x),
            y + rng.uniform(-jitter_y, jitter_y),
            SIZES[thing.size] + rng.uniform(-_SIZE_JITTER, _SIZE_JITTER),
        )
        for thing, (x, y) in zip(scene.things, centres, strict=True)
    ]


def draw(scenes: Sequence[Scene], rng: random.Random) -> tuple[Tensor, Tensor]:
    """Pictures (n, 3, 96, 96) in [-1, 1], and how much of each pixel things cover (n, 1, 96, 96) in [0, 1]."""
    pictures = torch.tensor([BACKGROUNDS[scene.background] for scene in scenes]).float()[:, :, None, None]
    pictures = pictures.repeat(1, 1, RESOLUTION, RESOLUTION)
    coverage = torch.zeros(len(scenes), 1, RESOLUTION, RESOLUTION)
    layouts = [layout(scene, rng) for scene in scenes]
    for index in (0, 1):
        rows = [row for row, scene in enumerate(scenes) if len(scene.things) > index]
        if not rows:
            continue
        things = [scenes[row].things[index] for row in rows]
        x, y, half = torch.tensor([layouts[row][index] for row in rows]).unbind(1)
        alpha = draw_masks([thing.shape for thing in things], x, y, half)[:, None]
        colour = torch.tensor([COLOURS[thing.colour] for thing in things]).float()[:, :, None, None]
        pictures[rows] = pictures[rows] * (1 - alpha) + colour * alpha
        coverage[rows] = torch.maximum(coverage[rows], alpha)
    return pictures / 127.5 - 1, coverage


def draw_masks(shapes: Sequence[str], x: Tensor, y: Tensor, half: Tensor, side: int = RESOLUTION) -> Tensor:
    """Anti-aliased coverage (n, side, side) in [0, 1] of n shapes with the given centres and half sides (px)."""
    axis = torch.arange(side) + 0.5
    across = (axis[None, None, :] - x[:, None, None]) / half[:, None, None]
    down = (axis[None, :, None] - y[:, None, None]) / half[:, None, None]
    across, down = across.expand(-1, side, -1), down.expand(-1, -1, side)
    distance = torch.empty_like(across)
    for shape in set(shapes):
        rows = [row for row, name in enumerate(shapes) if name == shape]
        distance[rows] = _DISTANCES[shape](across[rows], down[rows])
    return (0.5 - distance * half[:, None, None]).clamp(0, 1)


def _circle(x: Tensor, y: Tensor) -> Tensor:
    return torch.hypot(x, y) - 1


def _square(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(x.abs(), y.abs()) - 1


def _triangle(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(y - 1, (2 * x.abs() - y - 1) / 5**0.5)


def _cross(x: Tensor, y: Tensor) -> Tensor:
    upright = torch.maximum(x.abs() - 0.36, y.abs() - 1)
    return torch.minimum(upright, torch.maximum(x.abs() - 1, y.abs() - 0.36))


def _star(x: Tensor, y: Tensor, inner: float = 0.48) -> Tensor:
    """Five points, after the exact distance of Inigo Quilez: folded into half a point, the plane has one edge left."""
    cosine, sine = 0.809016994375, 0.587785252292
    x, y = x.abs() / _STAR_SCALE, -y / _STAR_SCALE
    for side in (1.0, -1.0):
        overlap = (side * cosine * x - sine * y).clamp(min=0)
        x, y = x - 2 * overlap * side * cosine, y + 2 * overlap * sine
    x, y = x.abs(), y - 1
    edge_x, edge_y = inner * sine, inner * cosine - 1
    along = ((x * edge_x + y * edge_y) / (edge_x**2 + edge_y**2)).clamp(0, 1)
    sign = torch.sign(y * edge_x - x * edge_y)
    return torch.hypot(x - edge_x * along, y - edge_y * along) * sign * _STAR_SCALE


_DISTANCES = {"circle": _circle, "square": _square, "triangle": _triangle, "star": _star, "cross": _cross}
