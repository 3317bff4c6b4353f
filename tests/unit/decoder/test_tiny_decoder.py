"""The embedded model's tiny decoder: its previews look like what the model's own VAE makes of the same latents."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from services.decoder.preview_decoder import PreviewDecoder, own_vae, tiny_decoder
from services.stage.device_thread import DeviceThread
from services.stage.tensors import to_bundle
from tests.unit.decoder.decoding_bench import DecodingBench, run

MODELS = Path(__file__).parents[3] / "models" / "shapes"
SIDE = 96
Colour = tuple[int, int, int]
# Of those that the model was trained with.
WHITE, BLACK = (250, 250, 250), (8, 8, 8)
RED, YELLOW, CYAN, BLUE = (225, 25, 30), (255, 235, 30), (30, 225, 235), (35, 70, 240)
# A swapped channel or a wrong scale does not reach them: the correlation of each channel, and how far its mean is off.
ALIKE = 0.98
OFF = 8


@pytest.fixture(scope="module")
def bench() -> DecodingBench:
    torch.set_num_threads(1)
    return DecodingBench(MODELS, "checkpoint", lambda: None)


@pytest.fixture(scope="module")
def decoder(bench: DecodingBench) -> PreviewDecoder:
    return tiny_decoder(bench.model, str(MODELS / "tiny_decoder"))


def picture(shape: Colour, ground: Colour) -> torch.Tensor:
    """A circle of one colour on a ground of another, -1 to 1."""
    image = Image.new("RGB", (SIDE, SIDE), ground)
    ImageDraw.Draw(image).ellipse((24, 16, 80, 72), fill=shape)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float() / 127.5 - 1


@pytest.mark.parametrize(("shape", "ground"), [(RED, WHITE), (BLUE, WHITE), (YELLOW, BLACK), (CYAN, BLACK)])
async def test_it_has_the_colours_of_the_real_decode(
    bench: DecodingBench, decoder: PreviewDecoder, thread: DeviceThread, shape: Colour, ground: Colour
) -> None:
    vae = own_vae(bench.model)
    with torch.no_grad():
        latents = vae.encode(picture(shape, ground)).latent_dist.mode() * vae.config.scaling_factor
    work = replace(bench.work(0, side=SIDE), bundles=[to_bundle({"latents": (latents, "")})])
    real = await run(thread, work)
    shown = await run(thread, replace(work, preview_vae=decoder.stand_in(SIDE)))
    assert shown.shape == real.shape
    for channel in range(3):
        ones, others = real[..., channel], shown[..., channel]
        assert abs(ones.mean() - others.mean()) < OFF
        if ones.std() > 4 * OFF:
            assert np.corrcoef(np.ravel(ones), np.ravel(others))[0, 1] > ALIKE
