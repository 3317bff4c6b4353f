"""The stand-in for a VAE: answers as the real one, decodes fewer frames and pooled cells."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.decoder.preview_vae import MAX_FRAMES, PreviewVae, frame_by_frame, picked, pooled


def stand_in(cell_pixels: int = 1, max_side: int = 256) -> Any:
    real = SimpleNamespace(config={"scaling_factor": 0.5}, device=torch.device("cpu"), own="real")
    return PreviewVae(real, lambda latents: latents[:, :3], cell_pixels, max_side)


def test_it_answers_as_the_real_one_but_in_single_precision() -> None:
    vae = stand_in()
    assert (vae.config["scaling_factor"], vae.own, vae.dtype, vae.device.type) == (0.5, "real", torch.float32, "cpu")
    assert vae.to(torch.float16) is vae
    with pytest.raises(AttributeError):
        _ = vae.nothing


def test_both_ways_to_return() -> None:
    latents = torch.randn(1, 4, 5, 6, dtype=torch.float64)
    assert torch.equal(stand_in().decode(latents).sample, latents[:, :3].float())
    assert torch.equal(stand_in().decode(latents, return_dict=False)[0], latents[:, :3].float())


@given(st.integers(1, 200))
def test_frames_are_spread_from_the_first_to_the_last(count: int) -> None:
    latents = torch.arange(count, dtype=torch.float32)[None, None, :, None, None]
    frames = picked(latents).flatten().tolist()
    assert len(frames) == min(count, MAX_FRAMES)
    assert frames == sorted(set(frames))
    assert (frames[0], frames[-1]) == (0, count - 1)


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 64))
def test_pooling_leaves_what_the_size_needs(height: int, width: int, max_cells: int) -> None:
    longest = max(pooled(torch.zeros(1, 1, height, width), max_cells).shape[-2:])
    narrow = max(height, width) // max_cells > min(height, width)
    assert longest <= max(2 * max_cells, 1) or narrow
    assert longest >= min(max_cells, max(height, width))


def test_pooling_keeps_the_mean_and_the_frames() -> None:
    latents = torch.randn(1, 4, 3, 8, 8)
    made = pooled(latents, 2)
    assert made.shape == (1, 4, 3, 2, 2)
    assert torch.allclose(made.mean((-1, -2)), latents.mean((-1, -2)), atol=1e-6)


def test_a_decoder_of_pictures_decodes_videos_frame_by_frame() -> None:
    seen = []

    def decode(latents: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(latents.shape))
        return latents[:, :3].repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)

    latents = torch.randn(1, 4, 3, 5, 6)
    made = frame_by_frame(decode)(latents)
    assert seen == [(3, 4, 5, 6)]
    assert made.shape == (1, 3, 3, 10, 12)
    assert torch.equal(made[:, :, 1, ::2, ::2], latents[:, :3, 1])
