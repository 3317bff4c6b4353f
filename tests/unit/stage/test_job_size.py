"""A job has the size that was priced, whatever its model's blocks make of it; what they make of an input goes on."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import ModularPipeline
from PIL import Image

from services.router.intake.extra import check_extra
from services.stage.checkpoint import Checkpoint
from services.stage.hosted_model import HostedModel
from services.stage.job_inputs import guidance
from tests.image_files import NOISE, png
from triptych.errors import Reason, TriptychError
from triptych.v1.job_pb2 import ATTACHMENT_ROLE_IMAGE, Attachment, JobSpec

CPU = torch.device("cpu")


@pytest.fixture
def kontext(tiny_checkpoints: Path, tmp_path: Path) -> Path:
    """A checkpoint of FLUX Kontext, whose blocks make an area of their own of any width and height."""
    folder = shutil.copytree(tiny_checkpoints / "flux", tmp_path / "kontext")
    index = folder / "model_index.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"_class_name": "FluxKontextPipeline"}))
    return Path(folder)


def hosted(folder: Path) -> HostedModel:
    """All blocks of all stages."""
    checkpoint = Checkpoint("model", str(folder))
    return HostedModel(checkpoint, list(checkpoint.blocks), torch.float32, CPU)


def result(model: HostedModel, spec: JobSpec) -> np.ndarray[Any, Any]:
    """The image that the blocks make one after the other."""
    inputs = model.inputs(spec) | {"output_type": "np", "generator": torch.Generator().manual_seed(spec.seed)}
    values: dict[str, tuple[Any, str]] = {}
    for name in model.wanted(inputs):
        block = model.block(name)
        state = block.run(block.fork(guidance(spec)), values, inputs)
        values.update(block.outputs(state))
    return np.asarray(state.get("images"))


def test_a_model_that_picks_an_area_gets_the_jobs(kontext: Path) -> None:
    spec = JobSpec(prompt="a star", seed=3, step_count=2, width=96, height=64, output_count=1, guidance=3.0)
    spec.attachments.append(Attachment(role=ATTACHMENT_ROLE_IMAGE, data=png(NOISE, 8, 2)))
    spec.extra.update({"_auto_resize": False})
    model = hosted(kontext)
    made = result(model, spec)
    assert made.shape == (1, 64, 96, 3)
    stock = ModularPipeline.from_pretrained(str(kontext))
    stock.load_components(dtype=torch.float32)
    stock.set_progress_bar_config(disable=True)
    generator = torch.Generator().manual_seed(spec.seed)
    state = stock(**model.inputs(spec), output_type="np", generator=generator)
    assert np.array_equal(made, state.get("images"))


def test_nobody_else_picks_it(kontext: Path) -> None:
    spec = JobSpec()
    spec.extra.update({"max_area": 64_000_000})
    [violation] = check_extra(spec, Checkpoint("model", str(kontext)).profile)
    assert violation.field == "spec.extra.max_area"


def test_another_size_than_was_asked_for_is_refused(tiny_checkpoints: Path) -> None:
    """As Wan's block makes it of an image that was not fitted."""
    block = hosted(tiny_checkpoints / "wan-i2v").block("image_encoder")
    inputs = {"image": Image.new("RGB", (128, 32)), "width": 64, "height": 64, "num_frames": 9}
    with pytest.raises(TriptychError) as caught:
        block.run(block.fork(), {}, inputs)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert [(each.field, each.description) for each in caught.value.violations] == [
        ("spec.width", "is 64; the model makes 128 of it: ask for that"),
        ("spec.height", "is 64; the model makes 32 of it: ask for that"),
    ]


def test_what_an_earlier_block_made_of_an_input_goes_on(tiny_checkpoints: Path) -> None:
    """Some have a block that writes the prompt anew: the text encoder is given what it wrote."""
    block = hosted(tiny_checkpoints / "sdxl").block("text_encoder")

    def embeds(values: dict[str, tuple[Any, str]], prompt: str) -> torch.Tensor:
        made: torch.Tensor = block.run(block.fork(), values, {"prompt": prompt}).get("prompt_embeds")
        return made

    assert torch.equal(embeds({"prompt": ("a blue circle", "")}, "a star"), embeds({}, "a blue circle"))
    assert not torch.equal(embeds({}, "a star"), embeds({}, "a blue circle"))
