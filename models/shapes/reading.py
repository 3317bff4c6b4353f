"""Reads a scene back from a picture by classical means: colours by distance, objects by connectivity, shapes by fit."""

from dataclasses import dataclass

import torch
from drawings import BACKGROUNDS, COLOURS, PLACES, RELATIONS, RESOLUTION, SHAPES, SIZES, Scene, Thing, draw_masks
from torch import Tensor
from torch.nn import functional

_BACKGROUND_TOLERANCE = 40.0  # all colour distances are Euclidean in 8-bit RGB
_COLOUR_TOLERANCE = 60.0
_OBJECT_CONTRAST = 50.0
_SPECK = 12  # px; a smaller patch is ignored, a larger one counts as an object
_LEAST_FIT = 0.8  # intersection over union with the best template
_PLACE_TOLERANCE = 10.0  # px
_WINDOW = 48  # px
_PROPORTIONS = {"star": (1.046, 0.995, 0.105)}  # width, height, centre below the middle, all over the half side


@dataclass(frozen=True, slots=True)
class Reading:
    """What a picture shows; None stands for anything that is not in the model's world."""

    background: str | None
    things: tuple[tuple[Thing | None, float, float], ...]  # with the centre, x and y in px


def faults(scene: Scene, picture: Tensor) -> list[str]:
    """Which attributes of the scene a picture (3, 96, 96) of bytes gets wrong; none if everything is right."""
    reading = read(picture)
    wrong = [] if reading.background == scene.background else ["background"]
    if len(reading.things) != len(scene.things):
        return [*wrong, "count"]
    found = _ordered(scene, reading)
    for wanted, (thing, _, _) in zip(scene.things, found, strict=True):
        wrong += [name for name in Thing.__slots__ if not thing or getattr(thing, name) != getattr(wanted, name)]
    if not _placed(scene, found):
        wrong.append("place" if len(found) == 1 else "relation")
    return sorted(set(wrong))


def _ordered(scene: Scene, reading: Reading) -> list[tuple[Thing | None, float, float]]:
    """The things in the order that fits the scene's things best, so that a swap counts as a wrong relation only."""
    things = list(reading.things)

    def agreement(order: list[tuple[Thing | None, float, float]]) -> int:
        pairs = [(wanted, thing) for wanted, (thing, _, _) in zip(scene.things, order, strict=True) if thing]
        return sum(getattr(wanted, name) == getattr(thing, name) for wanted, thing in pairs for name in Thing.__slots__)

    orders = [things, things[::-1]]
    best = max(agreement(order) for order in orders)
    candidates = [order for order in orders if agreement(order) == best]
    return next((order for order in candidates if _placed(scene, order)), candidates[0])


def _placed(scene: Scene, things: list[tuple[Thing | None, float, float]]) -> bool:
    _, x, y = things[0]
    if len(things) == 1:
        place_x, place_y = PLACES[scene.where]
        return max(abs(x - place_x), abs(y - place_y)) <= _PLACE_TOLERANCE
    across, down = x - things[1][1], y - things[1][2]
    (x1, y1), (x2, y2) = RELATIONS[scene.where]
    along, aside = (across, down) if x1 != x2 else (down, across)
    return along * (x1 - x2 + y1 - y2) > 0 and abs(along) > abs(aside)


def read(picture: Tensor) -> Reading:
    """Reads a picture (3, 96, 96) of bytes."""
    pixels = picture.float()
    sides = pixels[:, :3], pixels[:, -3:], pixels[:, :, :3], pixels[:, :, -3:]
    background = torch.cat([side.flatten(1) for side in sides], dim=1).median(dim=1).values
    contrast = (pixels - background[:, None, None]).norm(dim=0)
    things = [_read_thing(pixels, background, part) for part in _components(contrast > _OBJECT_CONTRAST)]
    return Reading(_nearest(background, BACKGROUNDS, _BACKGROUND_TOLERANCE), tuple(things))


def _nearest(colour: Tensor, palette: dict[str, tuple[int, int, int]], tolerance: float) -> str | None:
    distances = {name: (colour - torch.tensor(rgb).float()).norm().item() for name, rgb in palette.items()}
    name = min(distances, key=distances.__getitem__)
    return name if distances[name] <= tolerance else None


def _components(mask: Tensor) -> list[Tensor]:
    """Connected parts (96, 96) of a mask, no specks: pixels take their neighbours' largest label until all agree."""
    labels = torch.arange(1, mask.numel() + 1).view(mask.shape).float() * mask
    while True:
        spread = functional.max_pool2d(labels[None, None], 3, stride=1, padding=1)[0, 0] * mask
        if torch.equal(spread, labels):
            break
        labels = spread
    parts = [labels == label for label in sorted(set(labels.flatten().tolist())) if label]
    return [part for part in parts if part.sum() >= _SPECK]


def _read_thing(pixels: Tensor, background: Tensor, part: Tensor) -> tuple[Thing | None, float, float]:
    """The thing in one part of the picture, with its centre."""
    inner = part & (functional.avg_pool2d(part[None, None].float(), 3, stride=1, padding=1)[0, 0] > 0.99)
    colour = pixels[:, inner if inner.sum() >= 6 else part].median(dim=1).values
    # How much of each pixel is covered follows from how far its colour is on the way from background to object
    way = colour - background
    cover = ((pixels - background[:, None, None]) * way[:, None, None]).sum(0) / (way @ way)
    near = functional.max_pool2d(part[None, None].float(), 5, stride=1, padding=2)[0, 0]
    shape, fit, x, y, half = _fit(cover.clamp(0, 1) * near)
    name = _nearest(colour, COLOURS, _COLOUR_TOLERANCE)
    size = min(SIZES, key=lambda size: abs(SIZES[size] - half))
    return (Thing(size, name, shape) if name and fit >= _LEAST_FIT else None), x, y


def _fit(cover: Tensor) -> tuple[str, float, float, float, float]:
    """Best template for a coverage (96, 96): shape, fit in [0, 1], centre x and y, half side (px)."""
    left, right = _extent(cover.amax(0))
    top, bottom = _extent(cover.amax(1))
    # Templates are compared in a window that holds any thing; what lies outside it counts against the fit
    corner_x = int(min(max((left + right) / 2 - _WINDOW / 2, 0), RESOLUTION - _WINDOW))
    corner_y = int(min(max((top + bottom) / 2 - _WINDOW / 2, 0), RESOLUTION - _WINDOW))
    window = cover[corner_y : corner_y + _WINDOW, corner_x : corner_x + _WINDOW]
    steps = torch.tensor([-0.5, 0.0, 0.5])
    guesses = torch.cartesian_prod(steps, steps, 1.5 * steps)
    best = ("", -1.0, 0.0, 0.0, 0.0)
    for shape in SHAPES:
        width, height, drop = _PROPORTIONS.get(shape, (1.0, 1.0, 0.0))
        half = ((right - left) / width + (bottom - top) / height) / 4
        x = guesses[:, 0] + (left + right) / 2 - corner_x
        y = guesses[:, 1] + (top + bottom) / 2 + drop * half - corner_y
        halves = (guesses[:, 2] + half).clamp(min=2)
        masks = draw_masks([shape] * len(x), x, y, halves, _WINDOW)
        shared = torch.minimum(masks, window).sum((1, 2))
        fits = shared / (masks.sum((1, 2)) + cover.sum() - shared)
        at = int(fits.argmax())
        if fits[at] > best[1]:
            best = (shape, fits[at].item(), x[at].item() + corner_x, y[at].item() + corner_y, halves[at].item())
    return best


def _extent(profile: Tensor) -> tuple[float, float]:
    """Where a profile (n,) first and last exceeds a half, in px from its start; all of it if it never does."""
    inside = profile.gt(0.5).nonzero().flatten().tolist()
    return (float(inside[0]), float(inside[-1] + 1)) if inside else (0.0, float(len(profile)))
