"""A checkpoint with a long forward: FLUX's architecture, random weights, eight blocks of some 50 ms on one CPU core."""

import json
from pathlib import Path

import torch
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTokenizer,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
)

SIDE = 256
DOUBLE_BLOCKS, SINGLE_BLOCKS = 2, 6
BLOCKS = DOUBLE_BLOCKS + SINGLE_BLOCKS
SHAPES = Path(__file__).parents[1] / "models" / "shapes" / "checkpoint"


def write_long_model(folder: Path) -> Path:
    """Write it, and a catalog that names it "long" and the embedded model "short"; returns the catalog."""
    torch.manual_seed(0)
    _pipeline(folder).save_pretrained(folder / "long")
    catalog = folder / "models.toml"
    places = {"long": "long", "short": str(SHAPES)}
    catalog.write_text(
        "".join(f'[models.{name}]\ncheckpoint = "{place}"\ndtype = "float32"\n' for name, place in places.items())
    )
    return catalog


def _pipeline(folder: Path) -> FluxPipeline:
    letters = [chr(code) for code in range(33, 127)]
    tokens = letters + [letter + "</w>" for letter in letters] + ["<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({token: index for index, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
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
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -5.0)] + [(chr(code), -1.0) for code in range(32, 127)]
    unigram = Tokenizer(models.Unigram(vocab, unk_id=2))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
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
        tokenizer=CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=77),
        text_encoder_2=T5EncoderModel(T5Config(d_model=32, vocab_size=200, d_ff=64, d_kv=8, num_layers=1, num_heads=4)),
        tokenizer_2=PreTrainedTokenizerFast(
            tokenizer_object=unigram, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", model_max_length=512
        ),
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
