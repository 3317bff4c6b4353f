"""The linear map: finds the matrix where there is one, over images and videos, and comes back as it was stored."""

import pytest
import torch

from services.decoder.linear_map import LinearFit, LinearMap


@pytest.mark.parametrize("channels", [4, 16, 48])
def test_a_linear_decoder_is_found_exactly(channels: int) -> None:
    torch.manual_seed(channels)
    truth = LinearMap(torch.randn(3, channels + 1) / (4 * channels))
    fit = LinearFit()
    for _ in range(8):
        latents = torch.randn(1, channels, 6, 8)
        pixels = truth(latents).repeat_interleave(8, dim=2).repeat_interleave(8, dim=3)
        fit.add(latents, pixels)
    assert torch.allclose(fit.solve().weights, truth.weights, atol=1e-3)


def test_frames_of_a_video_are_averaged_over_time_too() -> None:
    torch.manual_seed(0)
    truth = LinearMap(torch.randn(3, 17) / 32)
    latents = torch.randn(2, 16, 3, 4, 4)
    fit = LinearFit()
    fit.add(latents, truth(latents).repeat_interleave(4, dim=2).repeat_interleave(8, dim=3).repeat_interleave(8, dim=4))
    found = fit.solve()(latents)
    assert found.shape == (2, 3, 3, 4, 4)
    assert torch.allclose(found, truth(latents), atol=1e-2)


def test_a_channel_that_never_varies_gets_no_weight() -> None:
    torch.manual_seed(0)
    latents = torch.randn(1, 4, 8, 8)
    latents[:, 3] = 0
    fit = LinearFit()
    fit.add(latents, latents[:, :3].clamp(-1, 1))
    weights = fit.solve().weights
    assert torch.isfinite(weights).all()
    assert weights[:, 3].abs().max() < 1e-6


def test_it_comes_back_as_it_was_stored() -> None:
    stored = LinearMap(torch.randn(3, 5))
    assert torch.equal(LinearMap.from_bytes(stored.to_bytes()).weights, stored.weights)


@pytest.mark.parametrize("data", [b"", b"nonsense", LinearMap(torch.zeros(2, 5)).to_bytes()])
def test_what_is_no_map_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a linear map"):
        LinearMap.from_bytes(data)


def test_nothing_to_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing to fit"):
        LinearFit().solve()
