"""Through the router, three services and NATS, a picture is the stock pipeline's, bit for bit."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.integration.whole.jobs import job
from tests.stock import StockPipelines, frames_of
from triptych.client import Client
from triptych.v1.job_pb2 import ATTACHMENT_ROLE_IMAGE, Attachment

MODELS = [
    ("shapes", {}),
    ("sdxl", {}),
    ("flux", {}),
    # The stock blocks of SD3 guide by a negative prompt alone.
    ("sd3", {"negative_prompt": "a blue square"}),
    ("wan", {"frame_count": 9}),
]


@pytest.mark.parametrize(("model", "fields"), MODELS, ids=[model for model, _ in MODELS])
async def test_the_suites_output_is_the_stock_pipelines(
    client: Client, stock: StockPipelines, model: str, fields: dict[str, Any]
) -> None:
    made = await client.submit(job(model, **fields))
    [media] = await client.generate(job(model, **fields))
    want = stock.frames(made.spec)
    got = frames_of(media.data)
    assert want.std() > 1, "a flat picture would prove nothing"
    assert got.shape == want.shape
    assert int(np.abs(got.astype(int) - want.astype(int)).max()) == 0


async def test_four_outputs_are_the_four_pictures_of_their_seeds(client: Client, stock: StockPipelines) -> None:
    spec = job("sdxl", output_count=4)
    accepted = await client.submit(spec)
    media = await client.generate(spec)
    assert [each.output.seed for each in media] == [11, 12, 13, 14]
    for index, each in enumerate(media):
        assert np.array_equal(frames_of(each.data), stock.frames(accepted.spec, index))


async def test_image_to_image(client: Client, stock: StockPipelines) -> None:
    file = io.BytesIO()
    Image.effect_noise((64, 64), 80).convert("RGB").save(file, "PNG")
    start = Attachment(role=ATTACHMENT_ROLE_IMAGE, media_type="image/png", data=file.getvalue())
    spec = job("sdxl", step_count=5, attachments=[start], extra={"strength": 0.6})
    accepted = await client.submit(spec)
    [media] = await client.generate(spec)
    # A job that is told of has its attachments without their bytes.
    assert accepted.spec.attachments[0].data == b""
    accepted.spec.attachments[0].CopyFrom(start)
    assert np.array_equal(frames_of(media.data), stock.frames(accepted.spec))


async def test_a_video_comes_as_mp4(client: Client) -> None:
    spec = job("wan", frame_count=9)
    spec.ClearField("output_format")
    [media] = await client.generate(spec)
    assert (media.output.media_type, media.output.frame_count) == ("video/mp4", 9)
    assert media.data[4:8] == b"ftyp"
