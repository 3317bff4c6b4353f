"""A checkpoint with a long forward: FLUX's architecture, random weights, eight blocks of some 50 ms on one CPU core."""

from pathlib import Path

import torch
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

from bench.stock import CHECKPOINT
from bench.stock import SIDE as SHORT_SIDE
from tests.tiny_tokenizers import clip_tokenizer, t5_tokenizer
from triptych.v1.job_pb2 import JobSpec

SIDE = 256
DOUBLE_BLOCKS, SINGLE_BLOCKS = 2, 6
BLOCKS = DOUBLE_BLOCKS + SINGLE_BLOCKS


def write_long_model(folder: Path) -> Path:
    """Write it, and a catalog that names it "long" and the embedded model "short"; returns the catalog."""
    torch.manual_seed(0)
    _pipeline(folder).save_pretrained(folder / "long")
    catalog = folder / "models.toml"
    places = {"long": "long", "short": str(CHECKPOINT)}
    catalog.write_text(
        "".join(f'[models.{name}]\ncheckpoint = "{place}"\ndtype = "float32"\n' for name, place in places.items())
    )
    return catalog


def spec_of(model: str, step_count: int, seed: int = 1) -> JobSpec:
    """A job of that catalog, one output and one forward a step; tiny checkpoints beside it take 96 × 96 pixels too."""
    side = SIDE if model == "long" else SHORT_SIDE
    return JobSpec(
        model=model,
        prompt="a red circle",
        seed=seed,
        step_count=step_count,
        guidance=1.0,
        width=side,
        height=side,
        output_count=1,
    )


def _pipeline(folder: Path) -> FluxPipeline:
    clip = CLIPTextConfig(
        vocab_size=200,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        projection_dim=32,
        bos_token_id=188,
        eos_token_id=189,
        pad_token_id=1,
    )
    vae = AutoencoderKL(
        in_channels=3,
        out_channels=3,
        latent_channels=4,
        down_block_types=["DownEncoderBlock2D"] * 4,
        up_block_types=["UpDecoderBlock2D"] * 4,
        block_out_channels=[8, 16, 16, 16],
        norm_num_groups=4,
        use_quant_conv=False,
        use_post_quant_conv=False,
        shift_factor=0.1,
        scaling_factor=0.36,
    )
    return FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=vae,
        text_encoder=CLIPTextModel(clip),
        tokenizer=clip_tokenizer(folder),
        text_encoder_2=T5EncoderModel(T5Config(d_model=32, vocab_size=200, d_ff=64, d_kv=8, num_layers=1, num_heads=4)),
        tokenizer_2=t5_tokenizer(),
        transformer=FluxTransformer2DModel(
            patch_size=1,
            in_channels=16,
            num_layers=DOUBLE_BLOCKS,
            num_single_layers=SINGLE_BLOCKS,
            attention_head_dim=64,
            num_attention_heads=6,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            axes_dims_rope=[16, 24, 24],
            guidance_embeds=True,
        ),
    )
