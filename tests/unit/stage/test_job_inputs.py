"""A job's fields as inputs of blocks: pictures that cannot be read."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

from services.stage.checkpoint import DENOISE, Checkpoint
from services.stage.hosted_model import HostedModel
from services.stage.job_inputs import job_inputs
from triptych.errors import Reason, TriptychError
from triptych.v1.job_pb2 import ATTACHMENT_ROLE_IMAGE, Attachment, JobSpec


def png(chunk_name: bytes = b"IDAT") -> bytes:
    file = io.BytesIO()
    Image.effect_noise((256, 256), 80).convert("RGB").save(file, "PNG")
    data = bytearray(file.getvalue())
    # The last but one: the header can be read, and much of the picture.
    place = data.rindex(b"IDAT")
    data[place : place + 4] = chunk_name
    return bytes(data)


def picture_of(data: bytes) -> object:
    attachment = Attachment(role=ATTACHMENT_ROLE_IMAGE, media_type="image/png", data=data)
    declared = [SimpleNamespace(name="image", type_hint=None, default=None)]
    return job_inputs(JobSpec(width=256, height=256, attachments=[attachment]), declared)["image"]


def test_a_picture_is_read() -> None:
    picture = picture_of(png())
    assert isinstance(picture, Image.Image)
    assert picture.size == (256, 256)


@pytest.mark.parametrize("stage", ["encode", "denoise", "decode"])
def test_a_stage_reads_the_images_that_its_blocks_take(tiny_checkpoints: Path, stage: str) -> None:
    checkpoint = Checkpoint("flux", str(tiny_checkpoints / "flux"))
    names = {"encode": checkpoint.encode_names, "denoise": [DENOISE], "decode": checkpoint.decode_names}[stage]
    model = HostedModel(checkpoint, names, torch.float32, torch.device("cpu"))
    spec = JobSpec(prompt="a star", width=64, height=32)
    spec.attachments.append(Attachment(role=ATTACHMENT_ROLE_IMAGE, data=png()))
    inputs = model.inputs(spec)
    assert (inputs["prompt"], "image" in inputs) == ("a star", stage == "encode")


@pytest.mark.parametrize(
    "data",
    [b"", b"no picture", png()[: len(png()) // 2], png(b"\0\0\0\0")],
    ids=["nothing", "no picture", "half a picture", "a chunk without a name"],
)
def test_one_that_cannot_be_read_is_named(data: bytes) -> None:
    with pytest.raises(TriptychError) as caught:
        picture_of(data)
    assert caught.value.reason is Reason.INVALID_FIELD
    assert [violation.field for violation in caught.value.violations] == ["spec.attachments[0].data"]
