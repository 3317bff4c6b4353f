"""Each input that tests give to a tiny checkpoint changes what the stock pipeline makes, or they prove nothing."""

import io
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.integration.stages.stage_calls import job
from tests.stock import StockPipelines
from tests.tiny_checkpoints import NAMES
from triptych.v1.job_pb2 import (
    ATTACHMENT_ROLE_CONTROL_IMAGE,
    ATTACHMENT_ROLE_IMAGE,
    ATTACHMENT_ROLE_MASK,
    Attachment,
    AttachmentRole,
    JobSpec,
)

Frames = np.ndarray[Any, Any]
# The part of all bytes of all pixels that an input changes at least.
LEAST_SHARE = 0.02
VIDEO = {"frame_count": 9}
NEGATIVE = {"negative_prompt": "a blue square"}


@cache
def noise(seed: int, role: AttachmentRole.ValueType = ATTACHMENT_ROLE_IMAGE) -> Attachment:
    """An image of noise."""
    file = io.BytesIO()
    pixels = np.random.RandomState(seed).randint(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return Attachment(role=role, media_type="image/png", data=file.getvalue())


def control(seed: int) -> dict[str, Any]:
    return {"attachments": [noise(seed, ATTACHMENT_ROLE_CONTROL_IMAGE)]}


def from_image(seed: int, strength: float = 0.6, mask: int | None = None) -> dict[str, Any]:
    masks = [] if mask is None else [noise(mask, ATTACHMENT_ROLE_MASK)]
    return {"step_count": 5, "attachments": [noise(seed), *masks], "extra": {"strength": strength}}


# What every model's jobs have.
USUAL: dict[str, dict[str, Any]] = {
    "prompt": {"prompt": "a blue square"},
    "seed": {"seed": 8},
    "step_count": {"step_count": 3},
}
GUIDED: dict[str, dict[str, Any]] = {
    "negative_prompt": {"negative_prompt": "a green dot"},
    "guidance": {"guidance": 5.0},
}
CLIP = {"clip_skip": {"extra": {"clip_skip": 1}}}
# A model's job, and what it is changed to.
JOBS: dict[str, tuple[str, dict[str, Any], dict[str, dict[str, Any]]]] = {
    "shapes": ("shapes", {}, {**USUAL, **GUIDED, "no guidance": {"guidance": 1.0}}),
    "sdxl": (
        "sdxl",
        {},
        {**USUAL, **GUIDED, **CLIP, "no guidance": {"guidance": 1.0}, "prompt_2": {"extra": {"prompt_2": "a star"}}},
    ),
    # The stock blocks of SD3 guide by a negative prompt alone.
    "sd3": ("sd3", NEGATIVE, {**USUAL, **GUIDED, "no guidance": {"guidance": 1.0}}),
    # It is distilled: guidance is an input of its network.
    "flux": ("flux", {}, {**USUAL, "guidance": {"guidance": 5.0}, "no guidance": {"guidance": 1.0}}),
    "wan": ("wan", VIDEO, {**USUAL, **GUIDED}),
    "wan22": ("wan22", VIDEO, {**USUAL, **GUIDED}),
    "wan-i2v": (
        "wan-i2v",
        {**VIDEO, "attachments": [noise(0)]},
        {**USUAL, **GUIDED, "first frame": {"attachments": [noise(1)]}},
    ),
    "sdxl-control": (
        "sdxl-control",
        control(0),
        {
            **USUAL,
            **GUIDED,
            "control image": control(1),
            "scale": {"extra": {"controlnet_conditioning_scale": 0.5}},
        },
    ),
    "sdxl from an image": ("sdxl", from_image(0), {"image": from_image(1), "strength": from_image(0, 0.9)}),
    "flux from an image": ("flux", from_image(0), {"image": from_image(1), "strength": from_image(0, 0.9)}),
    "sdxl within a mask": (
        "sdxl",
        from_image(0, mask=0),
        {"image": from_image(1, mask=0), "mask": from_image(0, mask=1)},
    ),
}
CASES = [
    pytest.param(model, base, change, id=f"{name}: {what}")
    for name, (model, base, changes) in JOBS.items()
    for what, change in changes.items()
]


@pytest.fixture(scope="module")
def stock(tiny_checkpoints: Path) -> StockPipelines:
    torch.set_num_threads(1)
    return StockPipelines(tiny_checkpoints)


@pytest.fixture(scope="module")
def frames(stock: StockPipelines) -> Callable[[JobSpec], Frames]:
    """What the stock pipeline makes of a job, once for each."""
    made: dict[bytes, Frames] = {}

    def frames_of(spec: JobSpec) -> Frames:
        key = spec.SerializeToString(deterministic=True)
        if key not in made:
            made[key] = stock.frames(spec)
        return made[key]

    return frames_of


def spec(model: str, fields: dict[str, Any]) -> JobSpec:
    return job(model, **{"step_count": 2, **fields})


@pytest.mark.parametrize(("model", "base", "change"), CASES)
def test_each_input_matters(
    frames: Callable[[JobSpec], Frames], model: str, base: dict[str, Any], change: dict[str, Any]
) -> None:
    one, other = frames(spec(model, base)), frames(spec(model, {**base, **change}))
    assert one.shape == other.shape
    assert (one != other).mean() > LEAST_SHARE


def test_every_checkpoint_is_looked_at() -> None:
    assert {model for model, _, _ in JOBS.values()} == {"shapes", *NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_no_layer_is_zero(stock: StockPipelines, name: str) -> None:
    """As those are before any training that are to change nothing at first: nothing would get through them."""
    networks = {key: part for key, part in stock.pipeline(name).components.items() if isinstance(part, torch.nn.Module)}
    zero = [
        f"{key}.{layer}"
        for key, network in networks.items()
        for layer, weight in network.named_parameters()
        if weight.ndim > 1 and not weight.any()
    ]
    assert networks
    assert zero == []
