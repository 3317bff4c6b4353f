"""Through the router, three services and NATS, a picture is the stock pipeline's, bit for bit."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

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


@pytest.mark.parametrize("model", ["sdxl", "flux"])
@pytest.mark.parametrize("from_image", [False, True], ids=["from text", "from an image"])
async def test_an_empty_prompt(client: Client, stock: StockPipelines, model: str, from_image: bool) -> None:
    spec = job(model, prompt="", guidance=1.0, step_count=5, width=64, height=64)
    if from_image:
        file = io.BytesIO()
        Image.effect_noise((64, 64), 80).convert("RGB").save(file, "PNG")
        spec.attachments.add(role=ATTACHMENT_ROLE_IMAGE, media_type="image/png", data=file.getvalue())
        spec.extra["strength"] = 0.6
    [media] = await client.generate(spec)
    assert np.array_equal(frames_of(media.data), stock.frames(spec, prompt=""))


async def test_an_empty_negative_prompt_through_the_suite(client: Client, stock: StockPipelines) -> None:
    texts: list[dict[str, str]] = [{}, {"negative_prompt": ""}, {"negative_prompt": "blue"}]
    pictures = []
    for given in texts:
        accepted = await client.submit(job("sdxl", **given))
        assert accepted.spec.HasField("negative_prompt") == bool(given)
        [media] = await client.generate(job("sdxl", **given))
        assert np.array_equal(frames_of(media.data), stock.frames(accepted.spec, **given))
        pictures.append(media.data)
    assert len(set(pictures)) == 3


@pytest.mark.parametrize("shape", [(128, 32), (1280, 720), (16_000, 1)])
async def test_a_first_frame_gives_a_video_its_shape(
    client: Client, stock: StockPipelines, shape: tuple[int, int]
) -> None:
    """The size is told before admission, is what the stages make, and the frame is fitted to it."""
    frame, file = Image.effect_noise(shape, 80).convert("RGB"), io.BytesIO()
    frame.save(file, "WEBP", lossless=True)
    start = Attachment(role=ATTACHMENT_ROLE_IMAGE, media_type="image/png", data=file.getvalue())
    spec = job("wan-i2v", frame_count=5, step_count=2, attachments=[start])
    told = await client.estimate(spec)
    accepted = await client.submit(spec)
    [media] = await client.generate(spec)
    size = (told.width, told.height)
    assert told.width > told.height
    assert (accepted.spec.width, accepted.spec.height) == (media.output.width, media.output.height) == size
    assert accepted.spec.attachments[0].media_type == "image/webp"
    accepted.spec.attachments[0].data = start.data
    fitted = ImageOps.fit(frame, size, Image.Resampling.LANCZOS)
    assert np.array_equal(frames_of(media.data), stock.frames(accepted.spec, image=fitted))


async def test_a_video_comes_as_mp4(client: Client) -> None:
    spec = job("wan", frame_count=9)
    spec.ClearField("output_format")
    [media] = await client.generate(spec)
    assert (media.output.media_type, media.output.frame_count) == ("video/mp4", 9)
    assert media.data[4:8] == b"ftyp"
