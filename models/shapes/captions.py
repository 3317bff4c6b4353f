"""How people phrase a scene: captions for training, with synonyms, other word orders and words left out."""

import random

from drawings import BACKGROUNDS, COLOURS, PLACES, RELATIONS, SHAPES, SIZES, Scene, Thing

CANONICAL_SHARE = 0.7  # the rest is rephrased
_TERSE_SHARE = 0.4  # of the rest: captions that leave out most, such as "a green cross"

_SYNONYMS = {
    "small": ("tiny", "little"),
    "medium": ("midsize",),
    "large": ("big", "huge"),
    "circle": ("disc", "dot", "ball"),
    "square": ("box", "block"),
    "cross": ("plus",),
    "purple": ("violet",),
    "cyan": ("turquoise",),
    "gray": ("grey",),
    "beige": ("tan",),
    "left of": ("to the left of",),
    "right of": ("to the right of",),
    "above": ("over", "on top of"),
    "below": ("under", "beneath"),
}
_PLACE_PHRASES = {
    "center": ("in the center", "in the middle", "centered"),
    "top": ("at the top", "in the upper part"),
    "bottom": ("at the bottom", "in the lower part"),
    "left": ("on the left", "at the left", "on the left side"),
    "right": ("on the right", "at the right", "on the right side"),
}
_PREFIXES = ("", "", "", "a drawing of ", "a picture of ", "an image of ", "a photo of ", "draw ")
_BACKGROUND_PHRASES = ("on a {} background", "on {}", "with a {} background", "against a {} background")


def phrase(scene: Scene, rng: random.Random) -> str:
    """A caption of the scene: mostly canonical, else rephrased, at times without a size, place or background."""
    if rng.random() < CANONICAL_SHARE:
        return scene.caption
    omission = 0.7 if rng.random() < _TERSE_SHARE else 0.1
    first, *others = [_thing(thing, omission, rng) for thing in scene.things]
    if others:
        where = f"{_word(scene.where, rng)} {others[0]}"
    else:
        where = rng.choice(_PLACE_PHRASES[scene.where]) if rng.random() > omission else ""
    background = ""
    if rng.random() > omission:
        background = rng.choice(_BACKGROUND_PHRASES).format(_word(scene.background, rng))
    return " ".join(f"{rng.choice(_PREFIXES)}{first} {where} {background}".split())


def words() -> list[str]:
    """Every word that a caption can hold, sorted."""
    phrases = [*SHAPES, *COLOURS, *BACKGROUNDS, *SIZES, *PLACES, *RELATIONS, *_PREFIXES, *_BACKGROUND_PHRASES]
    phrases += [text for group in (_SYNONYMS, _PLACE_PHRASES) for texts in group.values() for text in texts]
    phrases += ["a", "an", "the", "and", "of", "shape", "next", "two", "no"]
    return sorted({word for text in phrases for word in text.replace("{}", "").split()})


def _thing(thing: Thing, omission: float, rng: random.Random) -> str:
    size = "" if rng.random() < omission else _word(thing.size, rng)
    colour = "" if rng.random() < omission / 7 else _word(thing.colour, rng)
    article = rng.choice(("a", "a", "a", "the", ""))
    text = f"{article} {size} {colour} {_word(thing.shape, rng)}".strip()
    return f"an {text[2:]}" if text.startswith("a ") and text[2:].lstrip()[0] in "aeiou" else text


def _word(name: str, rng: random.Random) -> str:
    return rng.choice((name, name, *_SYNONYMS.get(name, ())))
