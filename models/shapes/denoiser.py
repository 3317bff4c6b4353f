"""Joint training of the denoiser and both text encoders on latents that are computed once."""

import copy
import random
from pathlib import Path

import torch
from architecture import build_scheduler, build_text_encoders, build_tokenizer, build_unet
from autoencoder import load_vae
from captions import phrase
from diffusers import UNet2DConditionModel
from drawings import RESOLUTION, Scene, draw, sample_scene
from run import Run
from torch import Tensor, nn
from torch.nn import functional
from transformers import CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

_CHUNK, _CHUNKS = 4096, 8  # scenes in a chunk, and how many chunks there are in the end
_GROW_EVERY = 400  # steps
_PAIR_SHARE = 0.75  # two things and a relation are the harder part
_BATCH = 32
_STEPS = 1000  # of the noise schedule
_ZERO_PROMPT, _EMPTY_PROMPT = 0.06, 0.05  # shares trained without a caption, as stock pipelines ask for it: all
# zeros where no negative prompt is given, the empty text where one is given but empty
_OBJECT_WEIGHT = 1.0  # extra weight of latents under objects
_EMA = 0.999
_SKEWED_SHARE = 0.6  # of the time, with noisy steps trained more often


class Denoiser(nn.Module):
    """The denoiser with its text encoders, as one module from token ids to velocities."""

    def __init__(self, tokenizer: CLIPTokenizer) -> None:
        super().__init__()
        self.unet: UNet2DConditionModel = build_unet()
        self.text_encoder: CLIPTextModel
        self.text_encoder_2: CLIPTextModelWithProjection
        self.text_encoder, self.text_encoder_2 = build_text_encoders(tokenizer)
        side = float(RESOLUTION)
        self._time_ids = torch.tensor([[side, side, 0.0, 0.0, side, side]])  # original size, corner, target size

    def forward(self, noisy: Tensor, timesteps: Tensor, tokens: Tensor, keep: Tensor) -> Tensor:
        """Velocity (n, c, h, w) for latents of the same shape; `keep` (n,) is 0 where the prompt is zeroed, else 1."""
        first = self.text_encoder(tokens, output_hidden_states=True)
        second = self.text_encoder_2(tokens, output_hidden_states=True)
        states = torch.cat([first.hidden_states[-2], second.hidden_states[-2]], dim=-1) * keep[:, None, None]
        added = {"text_embeds": second.text_embeds * keep[:, None], "time_ids": self._time_ids.expand(len(noisy), -1)}
        velocity: Tensor = self.unet(noisy, timesteps, states, added_cond_kwargs=added, return_dict=False)[0]
        return velocity


class Latents:
    """Scenes with their latents (n, 8, 12, 12) and weights (n, 1, 12, 12), in chunks that are kept in the work folder.

    Training starts on one chunk and adds others as it goes, for encoding takes about as long as training on a sample.
    """

    def __init__(self, work: Path) -> None:
        self._work = work
        self._vae = load_vae(work)
        self._scenes: list[Scene] = []
        self._latents, self._weights = torch.empty(0), torch.empty(0)
        self._chunks = 0

    def grow(self) -> None:
        """Adds one chunk, up to as many as are wanted: drawn and encoded, or read if an earlier run has done that."""
        if self._chunks == _CHUNKS:
            return
        rng = random.Random(2000 + self._chunks)
        scenes = [sample_scene(rng, _PAIR_SHARE) for _ in range(_CHUNK)]
        path = self._work / f"latents-{self._chunks}.pt"
        if not path.exists():
            torch.save(self._encode(scenes, rng), path)
        latents, weights = torch.load(path, weights_only=True)
        self._scenes += scenes
        self._latents, self._weights = torch.cat([self._latents, latents]), torch.cat([self._weights, weights])
        self._chunks += 1
        print(f"{len(self._scenes)} scenes", flush=True)

    @torch.no_grad()
    def _encode(self, scenes: list[Scene], rng: random.Random) -> tuple[Tensor, Tensor]:
        latents, weights = [], []
        for at in range(0, len(scenes), 32):
            pictures, coverage = draw(scenes[at : at + 32], rng)
            with torch.autocast("cpu", torch.bfloat16):
                latents.append(self._vae.encode(pictures).latent_dist.mean.float())
            weights.append(1 + _OBJECT_WEIGHT * functional.max_pool2d(coverage, 8))
        return torch.cat(latents), torch.cat(weights)

    def batch(self, count: int, rng: random.Random) -> tuple[list[Scene], Tensor, Tensor]:
        """Scenes, latents and weights of different rows, drawn at random."""
        rows = rng.sample(range(len(self._scenes)), count)
        return [self._scenes[row] for row in rows], self._latents[rows], self._weights[rows]


def train_denoiser(work: Path, minutes: float) -> None:
    """Trains for so many minutes; leaves the averaged weights in `denoiser-ema.pt` at every save."""
    torch.manual_seed(0)
    tokenizer = build_tokenizer(work / "tokenizer")
    denoiser = Denoiser(tokenizer)
    average = copy.deepcopy(denoiser).requires_grad_(False)
    run = Run(work / "unet.pt", {"denoiser": denoiser, "average": average}, minutes, rate=1e-3)
    run.resume()
    rng = random.Random(run.step)
    data = Latents(work)
    for _ in range(1 + run.step // _GROW_EVERY):
        data.grow()
    alphas = build_scheduler().alphas_cumprod.float()
    kept: list[Tensor] = list(denoiser.parameters())
    averaged: list[Tensor] = list(average.parameters())
    while run.progress < 1:
        scenes, latents, weights = data.batch(_BATCH, rng)
        tokens, keep = _conditioning(tokenizer, scenes, rng)
        # Noisy steps more often at first, for what is drawn is decided there, and its outline later. One from each of
        # many equal shares leaves less noise in the gradient than independent ones
        shares = (torch.arange(_BATCH) + torch.rand(_BATCH)) / _BATCH
        skewed = shares.sqrt() if run.progress < _SKEWED_SHARE else shares
        timesteps = (skewed * _STEPS).long().clamp(max=_STEPS - 1)
        with torch.autocast("cpu", torch.bfloat16):
            loss = _loss(denoiser, alphas, latents, weights, torch.randn_like(latents), timesteps, tokens, keep)
        saved = run.update(loss)
        with torch.no_grad():
            torch._foreach_lerp_(averaged, kept, 1 - min(_EMA, run.step / (run.step + 10)))
        if run.step % _GROW_EVERY == 0:
            data.grow()
        if saved:
            torch.save(average.state_dict(), work / "denoiser-ema.pt")


def _loss(
    denoiser: Denoiser,
    alphas: Tensor,
    latents: Tensor,
    weights: Tensor,
    noise: Tensor,
    timesteps: Tensor,
    tokens: Tensor,
    keep: Tensor,
) -> Tensor:
    """Weighted squared error of the velocity, after Salimans and Ho."""
    signal = alphas[timesteps].sqrt()[:, None, None, None]
    noisiness = (1 - alphas[timesteps]).sqrt()[:, None, None, None]
    velocity: Tensor = denoiser(signal * latents + noisiness * noise, timesteps, tokens, keep).float()
    error = (velocity - (signal * noise - noisiness * latents)) ** 2
    loss: Tensor = (error * weights).mean() / weights.mean()
    return loss


def _conditioning(tokenizer: CLIPTokenizer, scenes: list[Scene], rng: random.Random) -> tuple[Tensor, Tensor]:
    """Token ids (n, 32) and whether each prompt counts (n,), 0 or 1."""
    chances = [rng.random() for _ in scenes]
    captions = [
        "" if chance < _EMPTY_PROMPT else phrase(scene, rng) for chance, scene in zip(chances, scenes, strict=True)
    ]
    tokens = tokenizer(captions, padding="max_length", truncation=True, return_tensors="pt").input_ids
    return tokens, torch.tensor([float(chance < 1 - _ZERO_PROMPT) for chance in chances])


def load_denoiser(work: Path) -> tuple[Denoiser, CLIPTokenizer]:
    """The averaged weights of the last save, and the tokenizer they were trained with."""
    tokenizer = build_tokenizer(work / "tokenizer")
    denoiser = Denoiser(tokenizer)
    denoiser.load_state_dict(torch.load(work / "denoiser-ema.pt", weights_only=True))
    return denoiser.eval(), tokenizer
