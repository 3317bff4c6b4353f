"""The source document's price table."""

import pytest

from services.router.estimates.price import JobShape, ModelCost, TokenGrid

SDXL = TokenGrid()
FLUX = TokenGrid(text_token_count=512)
WAN = TokenGrid(vae_temporal_factor=4, text_token_count=512)


@pytest.mark.parametrize(
    ("grid", "width", "height", "frames", "steps", "cfg", "tflop_per_ktoken", "tokens", "seconds"),
    [
        pytest.param(SDXL, 512, 512, 1, 20, 2, 2.0, 1_024, 0.2, id="SDXL 512², 20 steps"),
        pytest.param(SDXL, 1024, 1024, 1, 30, 2, 2.9, 4_096, 1.6, id="SDXL 1024², 30 steps"),
        pytest.param(FLUX, 1024, 1024, 1, 28, 1, 19.5, 4_608, 5.6, id="FLUX 1024², 28 steps"),
        pytest.param(FLUX, 2048, 2048, 1, 28, 1, 24.7, 16_896, 26.0, id="FLUX 2048², 28 steps"),
        pytest.param(WAN, 832, 480, 81, 50, 2, 90.0, 33_272, 665.4, id="Wan 5 s 480p, 50 steps"),
        pytest.param(WAN, 1280, 720, 81, 50, 2, 175.0, 76_112, 2959.9, id="Wan 5 s 720p, 50 steps"),
    ],
)
def test_the_table_of_the_source(
    grid: TokenGrid,
    width: int,
    height: int,
    frames: int,
    steps: int,
    cfg: int,
    tflop_per_ktoken: float,
    tokens: int,
    seconds: float,
) -> None:
    shape = JobShape("m", width, height, steps, forwards_per_step=cfg, frame_count=frames)
    cost = ModelCost(grid, tflop_per_ktoken)
    assert cost.tokens(shape) == tokens
    assert round(cost.denoise_s(shape), 1) == seconds


def test_price_is_linear_in_steps_outputs_and_the_device() -> None:
    cost = ModelCost(FLUX, 20.0, effective_tflops=900.0)
    one = cost.denoise_s(JobShape("m", 1024, 1024, 10))
    assert one == pytest.approx(10 * 4.608 * 20.0 / 900.0)
    assert cost.denoise_s(JobShape("m", 1024, 1024, 30)) == pytest.approx(3 * one)
    assert cost.denoise_s(JobShape("m", 1024, 1024, 10, output_count=4)) == pytest.approx(4 * one)


def test_a_part_of_a_token_counts_as_one_and_the_first_frame_is_a_latent_frame() -> None:
    assert TokenGrid().tokens(17, 16) == 2
    assert [WAN.tokens(16, 16, frames) - 512 for frames in (1, 4, 5, 81)] == [1, 1, 2, 21]
