"""Grades the model on held-out prompts, or the grader itself: grade.py [--self-test]. Prints JSON."""

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy
import torch
from diffusers import StableDiffusionXLPipeline
from drawings import (
    BACKGROUNDS,
    COLOURS,
    PLACES,
    RELATIONS,
    RESOLUTION,
    SHAPES,
    SIZES,
    Scene,
    draw,
    sample_scene,
)
from PIL import Image
from reading import faults
from torch import Tensor

_BATCH = 20


def held_out_scenes(count: int, seed: int) -> list[Scene]:
    """Different held-out scenes, the first half with one thing, the rest with two."""
    rng = random.Random(seed)
    scenes: dict[Scene, None] = {}
    while len(scenes) < count:
        scenes[sample_scene(rng, pair_share=float(len(scenes) >= count // 2), held_out=True)] = None
    return list(scenes)


def draw_with_model(
    checkpoint: Path, prompts: Sequence[str], steps: int, guidance: float, seed: int
) -> Iterator[Tensor]:
    """Pictures (3, 96, 96) of bytes, one a prompt; picture n starts from noise of seed + n."""
    pipeline = StableDiffusionXLPipeline.from_pretrained(checkpoint, torch_dtype=torch.float32, add_watermarker=False)
    pipeline.set_progress_bar_config(disable=True)
    for at in range(0, len(prompts), _BATCH):
        some = list(prompts[at : at + _BATCH])
        pictures = pipeline(
            some,
            height=RESOLUTION,
            width=RESOLUTION,
            num_inference_steps=steps,
            guidance_scale=guidance,
            generator=[torch.Generator().manual_seed(seed + at + index) for index in range(len(some))],
            output_type="np",
        ).images
        yield from torch.from_numpy((numpy.asarray(pictures) * 255).round().astype("uint8")).permute(0, 3, 1, 2)


def grade(
    checkpoint: Path, count: int, steps: int, guidance: float, seed: int, sheet: Path | None = None
) -> dict[str, object]:
    """Share of held-out prompts with everything right, and what is wrong in the others; a contact sheet, if asked."""
    scenes = held_out_scenes(count, seed)
    began = time.monotonic()
    pictures = list(draw_with_model(checkpoint, [scene.caption for scene in scenes], steps, guidance, seed))
    wrong = [faults(scene, picture) for scene, picture in zip(scenes, pictures, strict=True)]
    if sheet:
        save_sheet(pictures[:: max(1, count // 40)], sheet)
    return {
        "prompts": count,
        "steps": steps,
        "guidance": guidance,
        "all_right": _share(wrong),
        "one_thing": _share([faults for scene, faults in zip(scenes, wrong, strict=True) if len(scene.things) == 1]),
        "two_things": _share([faults for scene, faults in zip(scenes, wrong, strict=True) if len(scene.things) == 2]),
        "faults": dict(Counter(fault for faults in wrong for fault in faults).most_common()),
        "seconds": round(time.monotonic() - began, 1),
    }


def save_sheet(pictures: Sequence[Tensor], path: Path, columns: int = 8) -> None:
    """Saves as many full rows of pictures as there are as one PNG."""
    rows = [
        torch.cat(list(pictures[at : at + columns]), dim=2) for at in range(0, len(pictures) - columns + 1, columns)
    ]
    Image.fromarray(torch.cat(rows, dim=1).permute(1, 2, 0).numpy()).save(path, optimize=True)


def self_test(count: int, seed: int) -> dict[str, object]:
    """How many true drawings the grader accepts, and how many it rejects once one attribute is altered."""
    rng = random.Random(seed)
    scenes = [sample_scene(rng, pair_share=0.5, held_out=True) for _ in range(count)]
    accepted = [not found for found in _faults_of_drawings(scenes, scenes, rng)]
    altered = [alter(scene, rng) for scene in scenes]
    found = _faults_of_drawings(scenes, [scene for scene, _ in altered], rng)
    kinds = {kind for _, kind in altered}
    rejected = {
        kind: [bool(f) for f, (_, k) in zip(found, altered, strict=True) if k == kind] for kind in sorted(kinds)
    }
    return {
        "drawings": count,
        "true_accepted": sum(accepted) / count,
        "altered_rejected": sum(bool(wrong) for wrong in found) / count,
        "by_attribute": {kind: round(sum(right) / len(right), 4) for kind, right in rejected.items()},
    }


def alter(scene: Scene, rng: random.Random) -> tuple[Scene, str]:
    """The scene with one attribute changed, and which."""
    kind = rng.choice(("background", "count", "size", "colour", "shape", "where"))
    if kind == "background":
        return replace(scene, background=_other(BACKGROUNDS, scene.background, rng)), kind
    if kind == "where":
        others = [name for name in (PLACES if len(scene.things) == 1 else RELATIONS) if name != scene.where]
        same = len(set(scene.things)) == 1 and len(scene.things) == 2
        opposite = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
        others = [
            name for name in others if not (same and name == opposite[scene.where])
        ]  # twins look the same swapped
        return replace(scene, where=rng.choice(others)), kind
    if kind == "count":
        if len(scene.things) == 2:
            return replace(scene, things=scene.things[:1], where=rng.choice(list(PLACES))), kind
        return replace(scene, things=(scene.things[0], scene.things[0]), where=rng.choice(list(RELATIONS))), kind
    things = list(scene.things)
    index = rng.randrange(len(things))
    palette: Sequence[str] = {"size": list(SIZES), "colour": list(COLOURS), "shape": list(SHAPES)}[kind]
    things[index] = replace(things[index], **{kind: _other(palette, getattr(things[index], kind), rng)})
    return replace(scene, things=tuple(things)), kind


def _other(names: Sequence[str] | dict[str, tuple[int, int, int]], name: str, rng: random.Random) -> str:
    return rng.choice([other for other in names if other != name])


def _faults_of_drawings(wanted: Sequence[Scene], drawn: Sequence[Scene], rng: random.Random) -> list[list[str]]:
    pictures, _ = draw(drawn, rng)
    data = ((pictures + 1) * 127.5).round().byte()
    return [faults(scene, picture) for scene, picture in zip(wanted, data, strict=True)]


def _share(wrong: Sequence[Sequence[str]]) -> float:
    return round(sum(not found for found in wrong) / max(len(wrong), 1), 4)


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--self-test", action="store_true", help="grade the grader on drawings, true and altered")
    parser.add_argument("--checkpoint", type=Path, default=Path(__file__).parent / "checkpoint")
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guidance", type=float, default=2.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sheet", type=Path, help="save some of the pictures as a PNG")
    a = parser.parse_args()
    if a.self_test:
        result = self_test(a.count, a.seed)
    else:
        result = grade(a.checkpoint, a.count, a.steps, a.guidance, a.seed, a.sheet)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
