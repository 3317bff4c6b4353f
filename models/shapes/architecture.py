"""The parts of `shapes`: SDXL's classes at toy size, and their stock on-disk layout."""

import json
from itertools import pairwise
from pathlib import Path

import torch
from captions import words
from diffusers import (
    AutoencoderKL,
    AutoencoderTiny,
    EulerDiscreteScheduler,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from diffusers.models.attention_processor import AttnProcessor
from drawings import RESOLUTION
from tokenizers.pre_tokenizers import ByteLevel
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, CLIPTokenizer

LATENT_CHANNELS = 8  # with 4, colours collapse
LATENT_SIDE = RESOLUTION // 8
TEXT_WIDTH = 64  # of each of the two text encoders
PROMPT_TOKENS = 32
_TIME_ID_WIDTH = 8


def build_tokenizer(folder: Path) -> CLIPTokenizer:
    """A CLIP tokenizer in which each word of the captions is one token and any other text is spelled in bytes."""
    letters = sorted(ByteLevel.alphabet())
    tokens = ["<|startoftext|>", "<|endoftext|>", *letters, *(letter + "</w>" for letter in letters)]
    merges: list[tuple[str, str]] = []
    for word in words():
        pieces = _merge([*word[:-1], word[-1] + "</w>"], merges)
        # A merge that is appended ranks last, so it never breaks up a word that was whole before it.
        while len(pieces) > 1:
            merges.append((pieces[0], pieces[1]))
            tokens.append(pieces[0] + pieces[1])
            pieces = [pieces[0] + pieces[1], *pieces[2:]]
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary, ranks = folder / "vocab.json", folder / "merges.txt"
    vocabulary.write_text(json.dumps({token: index for index, token in enumerate(dict.fromkeys(tokens))}))
    ranks.write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges))
    return CLIPTokenizer(str(vocabulary), str(ranks), model_max_length=PROMPT_TOKENS)


def _merge(pieces: list[str], merges: list[tuple[str, str]]) -> list[str]:
    """Byte-pair encoding: joins the best ranked neighbours until none is left to join."""
    rank = {pair: index for index, pair in enumerate(merges)}
    while True:
        pairs = list(pairwise(pieces))
        best = min(pairs, key=lambda pair: rank.get(pair, len(rank)), default=None)
        if best is None or best not in rank:
            return pieces
        at = pairs.index(best)
        pieces = [*pieces[:at], pieces[at] + pieces[at + 1], *pieces[at + 2 :]]


def build_vae() -> AutoencoderKL:
    """Eight-fold downsampling to (8, 12, 12), 1 M parameters."""
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(16, 32, 64, 64),
        layers_per_block=1,
        latent_channels=LATENT_CHANNELS,
        norm_num_groups=8,
        sample_size=RESOLUTION,
        scaling_factor=1.0,  # the latents are normalised in the weights, see autoencoder.normalise
        force_upcast=False,
        mid_block_add_attention=False,
    )


def build_tiny() -> AutoencoderTiny:
    """A decoder of latents in one cheap pass, and an encoder to match."""
    return AutoencoderTiny(
        encoder_block_out_channels=(16, 16, 16, 16),
        decoder_block_out_channels=(24, 24, 24, 24),
        num_encoder_blocks=(1, 1, 1, 2),
        num_decoder_blocks=(3, 2, 1, 1),
        latent_channels=LATENT_CHANNELS,
        scaling_factor=1.0,
        force_upcast=False,
    )


def build_unet() -> UNet2DConditionModel:
    """The denoiser: 12 x 12 without attention, 6 x 6 with self- and cross-attention."""
    unet = UNet2DConditionModel(
        sample_size=LATENT_SIDE,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        block_out_channels=(64, 160),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=(2, 5),
        transformer_layers_per_block=1,
        norm_num_groups=16,
        use_linear_projection=True,
        cross_attention_dim=2 * TEXT_WIDTH,
        addition_embed_type="text_time",
        addition_time_embed_dim=_TIME_ID_WIDTH,
        projection_class_embeddings_input_dim=6 * _TIME_ID_WIDTH + TEXT_WIDTH,
    )
    unet.set_attn_processor(AttnProcessor())  # the backward pass of the fused one takes twice as long on a CPU
    return unet


def build_text_encoders(tokenizer: CLIPTokenizer) -> tuple[CLIPTextModel, CLIPTextModelWithProjection]:
    """Two CLIP text encoders of three layers; as in SDXL, tokens leave before the last."""
    config = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=TEXT_WIDTH,
        intermediate_size=4 * TEXT_WIDTH,
        projection_dim=TEXT_WIDTH,
        num_hidden_layers=3,
        num_attention_heads=2,
        max_position_embeddings=PROMPT_TOKENS,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    encoders = CLIPTextModel(config), CLIPTextModelWithProjection(config)
    for encoder in encoders:
        for module in encoder.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=0.3)  # CLIP's 0.02 leaves the denoiser deaf for hundreds of steps
    return encoders


def build_scheduler() -> EulerDiscreteScheduler:
    """Euler over velocities with zero terminal SNR, so that plain black and white backgrounds are in reach."""
    return EulerDiscreteScheduler(
        beta_start=0.00085,
        beta_end=0.012,
        beta_schedule="scaled_linear",
        prediction_type="v_prediction",
        timestep_spacing="trailing",
        rescale_betas_zero_snr=True,
    )


def save_checkpoint(
    folder: Path,
    vae: AutoencoderKL,
    unet: UNet2DConditionModel,
    text_encoder: CLIPTextModel,
    text_encoder_2: CLIPTextModelWithProjection,
    tokenizer: CLIPTokenizer,
) -> None:
    """Writes the stock SDXL layout, weights in half precision."""
    pipeline = StableDiffusionXLPipeline(
        vae=vae,
        unet=unet,
        text_encoder=text_encoder,
        text_encoder_2=text_encoder_2,
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
        scheduler=build_scheduler(),
        add_watermarker=False,
    )
    pipeline.to(dtype=torch.float16).save_pretrained(folder)
