"""Training of the two autoencoders: the stock one, then a tiny one that decodes its latents in one cheap pass."""

import random
from pathlib import Path

import torch
from architecture import LATENT_CHANNELS, build_tiny, build_vae
from diffusers import AutoencoderKL, AutoencoderTiny
from drawings import RESOLUTION, draw, sample_scene
from run import Run
from torch import Tensor
from torch.nn import functional

_POOL = 8192  # drawings that are held in memory and drawn from again and again
_CROP = 48  # px; crops around objects cost a quarter of a whole picture and hold most of what is hard
_CROP_SHARE = 0.45  # of the time; whole pictures follow
_OBJECT_WEIGHT = 6.0  # extra weight of pixels on and near objects; without it the background wins
_KL_WEIGHT = 2e-4
_LATENT_NOISE = 0.15  # of the latents' deviation; a decoder must bear the denoiser's small errors


class Pool:
    """Drawings in memory as bytes, and batches of them: pictures in [-1, 1] and the weight of each pixel."""

    def __init__(self, seed: int, count: int = _POOL) -> None:
        self._rng = random.Random(seed)
        scenes = [sample_scene(self._rng, pair_share=0.7) for _ in range(count)]
        parts = [draw(scenes[at : at + 256], self._rng) for at in range(0, count, 256)]
        pictures = torch.cat([((part[0] + 1) * 127.5).round().byte() for part in parts])
        coverage = torch.cat([(part[1] * 255).round().byte() for part in parts])
        self._data = torch.cat([pictures, coverage], dim=1)

    def batch(self, count: int, side: int) -> tuple[Tensor, Tensor]:
        """Pictures (n, 3, side, side) and weights (n, 1, side, side); parts of a picture hold a part of an object."""
        rows = self._rng.sample(range(len(self._data)), count)
        data = self._data[rows] if side == RESOLUTION else torch.stack([self._crop(row, side) for row in rows])
        pictures = data[:, :3].float() / 127.5 - 1
        near = functional.max_pool2d(data[:, 3:].float() / 255, 7, stride=1, padding=3)
        return pictures, 1 + _OBJECT_WEIGHT * near

    def _crop(self, row: int, side: int) -> Tensor:
        inside = (self._data[row, 3] > 127).nonzero()
        y, x = inside[self._rng.randrange(len(inside))].tolist()
        last = RESOLUTION - side
        top = min(max(y - side // 2 + self._rng.randint(-8, 8), 0), last)
        left = min(max(x - side // 2 + self._rng.randint(-8, 8), 0), last)
        return self._data[row, :, top : top + side, left : left + side]


def train_vae(work: Path, minutes: float) -> None:
    """Trains the stock autoencoder for so many minutes; leaves `vae-final.pt` in the work folder."""
    torch.manual_seed(0)
    vae = build_vae()
    with torch.no_grad():
        vae.quant_conv.bias[LATENT_CHANNELS:] -= 5  # start with little noise in the latents: log variance -5
    run = Run(work / "vae.pt", {"vae": vae}, minutes, rate=1.5e-3)
    run.resume()
    pool = Pool(seed=run.step)
    while run.progress < 1:
        pictures, weights = pool.batch(32, _CROP) if run.progress < _CROP_SHARE else pool.batch(16, RESOLUTION)
        with torch.autocast("cpu", torch.bfloat16):
            loss = _vae_loss(vae, pictures, weights)
        run.update(loss)
    normalise(vae, pool)
    torch.save(vae.state_dict(), work / "vae-final.pt")


def _vae_loss(vae: AutoencoderKL, pictures: Tensor, weights: Tensor) -> Tensor:
    posterior = vae.encode(pictures).latent_dist
    mean, logvar = posterior.mean.float(), posterior.logvar.float()
    spread = _LATENT_NOISE * mean.std().detach() * torch.rand(len(mean), 1, 1, 1)
    deviation = torch.sqrt(torch.exp(logvar) + spread**2)
    decoded: Tensor = vae.decode(mean + deviation * torch.randn_like(mean)).sample.float()
    divergence = 0.5 * (mean**2 + logvar.exp() - 1 - logvar).mean()
    loss: Tensor = picture_loss(decoded, pictures, weights) + _KL_WEIGHT * divergence
    return loss


def picture_loss(decoded: Tensor, pictures: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean of absolute and squared error; all (n, c, height, width)."""
    error = (decoded - pictures).abs()
    return ((error + error**2) * weights).mean() / weights.mean()


@torch.no_grad()
def normalise(vae: AutoencoderKL, pool: Pool) -> None:
    """Rescales every latent channel to mean 0 and deviation 1, within the weights of the two 1 x 1 convolutions.

    One scaling factor, all that a stock pipeline knows, can't do that for channels of different spread.
    """
    pictures, _ = pool.batch(512, RESOLUTION)
    latents = torch.cat([vae.encode(part).latent_dist.mean for part in torch.split(pictures, 64)])
    mean, deviation = latents.mean((0, 2, 3)), latents.std((0, 2, 3))
    channels = len(mean)
    after, before = vae.quant_conv, vae.post_quant_conv
    after.weight[:channels] /= deviation[:, None, None, None]
    after.bias[:channels] = (after.bias[:channels] - mean) / deviation
    after.bias[channels:] -= 2 * deviation.log()  # the second half holds log variances
    before.bias += before.weight[:, :, 0, 0] @ mean
    before.weight *= deviation[None, :, None, None]


def train_decoder(work: Path, minutes: float) -> None:
    """Trains the decoder on, for the encoder's fixed latents: what the denoiser has learned stays valid."""
    vae = load_vae(work)
    parts = {"decoder": vae.decoder.requires_grad_(True), "post": vae.post_quant_conv.requires_grad_(True)}
    run = Run(work / "decoder.pt", parts, minutes, rate=5e-4)
    run.resume()
    pool = Pool(seed=3000 + run.step)
    while run.progress < 1:
        pictures, weights = pool.batch(16, RESOLUTION)
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                latents = vae.encode(pictures).latent_dist.mean.float()
            decoded = vae.decode(_perturb(latents)).sample.float()
        run.update(picture_loss(decoded, pictures, weights))
    torch.save(vae.state_dict(), work / "vae-final.pt")


def load_vae(work: Path) -> AutoencoderKL:
    """The trained stock autoencoder, frozen."""
    vae = build_vae()
    vae.load_state_dict(torch.load(work / "vae-final.pt", weights_only=True))
    return vae.eval().requires_grad_(False)


def train_tiny(work: Path, minutes: float) -> None:
    """Trains the tiny autoencoder to read and write the stock one's latents; leaves its state in the work folder."""
    torch.manual_seed(0)
    vae, tiny = load_vae(work), build_tiny().to(memory_format=torch.channels_last)
    run = Run(work / "tiny.pt", {"tiny": tiny}, minutes, rate=2e-3)
    run.resume()
    pool = Pool(seed=1000 + run.step)
    while run.progress < 1:
        pictures, weights = pool.batch(8, RESOLUTION)
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                latents = vae.encode(pictures).latent_dist.mean.float()
            latents = latents.contiguous(memory_format=torch.channels_last)
            pictures = pictures.contiguous(memory_format=torch.channels_last)
            loss = _tiny_loss(tiny, pictures, latents, weights)
        run.update(loss)


def load_tiny(work: Path) -> AutoencoderTiny:
    """The tiny autoencoder of the last save."""
    tiny = build_tiny()
    tiny.load_state_dict(torch.load(work / "tiny.pt", weights_only=True)["modules"]["tiny"])
    return tiny.eval()


def _tiny_loss(tiny: AutoencoderTiny, pictures: Tensor, latents: Tensor, weights: Tensor) -> Tensor:
    decoded: Tensor = tiny.decode(_perturb(latents)).sample.float()
    encoded = tiny.encode(pictures).latents.float()
    loss: Tensor = picture_loss(decoded, pictures, weights) + 0.1 * (encoded - latents).abs().mean()
    return loss


def _perturb(latents: Tensor) -> Tensor:
    """Latents of deviation 1 with the errors that a denoiser may leave in them."""
    return latents + _LATENT_NOISE * torch.rand(len(latents), 1, 1, 1) * torch.randn_like(latents)
