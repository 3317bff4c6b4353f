"""What a model's latents are made into pixels with, for a preview: a tiny decoder, or a linear map."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import AutoModel
from torch import Tensor

from services.decoder.linear_map import LinearFit, LinearMap
from services.decoder.preview_vae import PreviewVae, frame_by_frame
from services.decoder.sample_pictures import sample_picture
from services.stage.hosted_model import HostedModel
from services.stage.module_fork import fork_module
from triptych.v1.worker_pb2 import MEDIA_KIND_VIDEO

# Pictures that a linear map is fitted on, and their size in latent cells: small, since each is decoded in one piece.
PICTURES = 24
PICTURE_CELLS, VIDEO_CELLS = 12, 8


@dataclass(frozen=True)
class PreviewDecoder:
    """Of one model. Use it on the device thread only."""

    vae: Any
    to_pixels: Callable[[Tensor], Tensor]
    # Pixels a side that it makes of one latent cell.
    cell_pixels: int

    def stand_in(self, max_side: int) -> PreviewVae:
        """In the place of the model's VAE."""
        return PreviewVae(self.vae, self.to_pixels, self.cell_pixels, max_side)


def linear_decoder(model: HostedModel, linear_map: LinearMap) -> PreviewDecoder:
    """One pixel a latent cell."""
    return PreviewDecoder(own_vae(model), linear_map.to(model.device), 1)


def tiny_decoder(model: HostedModel, place: str) -> PreviewDecoder:
    """An autoencoder of another kind that reads the model's own latents, from a folder or the hub."""
    vae = AutoModel.from_pretrained(place, dtype=model.dtype, use_safetensors=True).to(model.device).eval()

    def decode(latents: Tensor) -> Tensor:
        pixels: Tensor = vae.decode(latents.to(vae.dtype), return_dict=False)[0]
        return pixels.float()

    # Its configuration takes the place of the VAE's: it says how its latents are scaled.
    return PreviewDecoder(vae, frame_by_frame(decode), model.checkpoint.profile.vae_scale_factor)


def fitting(model: HostedModel, fit: LinearFit) -> Iterator[Callable[[], None]]:
    """The pieces of work that fit a linear map to the model's own VAE: one picture, encoded and decoded, each."""
    # Real decodes run in the midst of it.
    profile, vae = model.checkpoint.profile, fork_module(own_vae(model))
    takes_frames = any(isinstance(part, torch.nn.Conv3d) for part in vae.modules())
    side = profile.vae_scale_factor * (VIDEO_CELLS if takes_frames else PICTURE_CELLS)
    frame_count = 1 + profile.vae_temporal_factor if profile.media_kind == MEDIA_KIND_VIDEO else 1
    if vae.dtype == torch.float16:
        # Many overflow in it.
        vae = vae.float()
    generator = torch.Generator().manual_seed(0)

    def fit_one() -> None:
        picture = sample_picture(side, generator)[None]
        if takes_frames:
            picture = picture[:, :, None].repeat(1, 1, frame_count, 1, 1)
        latents = _mean(vae.encode(picture.to(model.device, vae.dtype)))
        fit.add(latents, vae.decode(latents, return_dict=False)[0])

    for _ in range(PICTURES):
        yield fit_one


def own_vae(model: HostedModel) -> Any:
    """The model's VAE. Raises `ValueError` if none of its decode blocks has one."""
    for name in model.names:
        vae = model.block(name).pipeline.components.get("vae")
        if vae is not None:
            return vae
    raise ValueError(f"model {model.checkpoint.name} decodes without a VAE")


def _mean(encoded: Any) -> Tensor:
    """What an encoder makes of a picture, no noise drawn: a distribution's mean, or plain latents."""
    if hasattr(encoded, "latent_dist"):
        mode: Tensor = encoded.latent_dist.mode()
        return mode
    latents: Tensor = encoded.latents if hasattr(encoded, "latents") else encoded.latent
    return latents
