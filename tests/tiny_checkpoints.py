"""Random tiny checkpoints in the stock layouts, from configs alone: about 13 MB and a few seconds for all."""

from pathlib import Path

import torch
from diffusers import (
    AutoencoderKL,
    AutoencoderKLWan,
    ControlNetModel,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    FluxTransformer2DModel,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
    StableDiffusionXLControlNetPipeline,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
    UniPCMultistepScheduler,
    WanImageToVideoPipeline,
    WanPipeline,
    WanTransformer3DModel,
)
from transformers import (
    CLIPImageProcessor,
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    CLIPVisionConfig,
    CLIPVisionModelWithProjection,
    PreTrainedTokenizerFast,
    T5Config,
    T5EncoderModel,
    UMT5Config,
    UMT5EncoderModel,
)

from tests.tiny_tokenizers import clip_tokenizer, t5_tokenizer

NAMES = ("sdxl", "flux", "sd3", "wan", "wan-i2v", "wan22", "sdxl-control")

_CLIP = CLIPTextConfig(
    vocab_size=200,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    projection_dim=32,
    bos_token_id=188,
    eos_token_id=189,
    pad_token_id=1,
)
_T5 = {"vocab_size": 200, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4}
_VAE = {
    "in_channels": 3,
    "out_channels": 3,
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
    "block_out_channels": [8, 16, 16, 16],
    "norm_num_groups": 4,
    "sample_size": 128,
}
_NO_QUANT = {"use_quant_conv": False, "use_post_quant_conv": False}


def make_tiny_checkpoints(folder: Path) -> None:
    """Write every checkpoint of `NAMES` into `folder`, the same weights each time."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    clip, t5 = clip_tokenizer(folder), t5_tokenizer()
    _sdxl(clip).save_pretrained(folder / "sdxl")
    _flux(clip, t5).save_pretrained(folder / "flux")
    _sd3(clip, t5).save_pretrained(folder / "sd3")
    WanPipeline(**_wan(t5, in_channels=16)).save_pretrained(folder / "wan")
    _wan_i2v(t5).save_pretrained(folder / "wan-i2v")
    _wan22(t5).save_pretrained(folder / "wan22")
    _save_sdxl_control(clip, folder / "sdxl-control")


def write_catalog(folder: Path, names: tuple[str, ...] = NAMES) -> Path:
    """A models.toml beside the checkpoints, 64 × 64 pixels, three steps; and the embedded model, by its real path."""
    shapes = Path(__file__).parents[1] / "models" / "shapes" / "checkpoint"
    lines = [
        f'[models.shapes]\ncheckpoint = "{shapes}"\ndtype = "float32"',
        "[models.shapes.defaults]\nstep_count = 20\nguidance = 2.5\nwidth = 96\nheight = 96",
        "[models.shapes.cost]\neffective_tflops = 0.1\ntflop_per_ktoken = 0.002\nforward_s = 0.02\nload_s = 1.0",
    ]
    for name in names:
        kind, frames = ("video", 9) if name.startswith("wan") else ("image", 1)
        lines += [
            f'[models."{name}"]',
            f'checkpoint = "{name}"',
            f'media_kind = "{kind}"',
            'dtype = "float32"',
            f'[models."{name}".defaults]',
            f"step_count = 3\nguidance = 3.0\nwidth = 64\nheight = 64\nframe_count = {frames}\nfps = 8.0",
            f'[models."{name}".limits]',
            f"max_side = 1024\nmax_frame_count = {33 if frames > 1 else 1}",
            f'[models."{name}".cost]',
            "effective_tflops = 1.0\nload_s = 0.5",
            # One is left to be counted.
            "" if name == "flux" else "tflop_per_ktoken = 0.02",
        ]
    path = folder / "models.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def _sdxl(clip: CLIPTokenizer) -> StableDiffusionXLPipeline:
    return StableDiffusionXLPipeline(
        vae=AutoencoderKL(latent_channels=4, force_upcast=False, **_VAE),
        text_encoder=CLIPTextModel(_CLIP),
        text_encoder_2=CLIPTextModelWithProjection(_CLIP),
        tokenizer=clip,
        tokenizer_2=clip,
        unet=UNet2DConditionModel(
            sample_size=16,
            in_channels=4,
            out_channels=4,
            block_out_channels=(32, 64),
            layers_per_block=2,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            attention_head_dim=(2, 4),
            use_linear_projection=True,
            addition_embed_type="text_time",
            addition_time_embed_dim=8,
            transformer_layers_per_block=(1, 2),
            projection_class_embeddings_input_dim=80,
            cross_attention_dim=64,
        ),
        scheduler=EulerDiscreteScheduler(
            beta_start=0.00085,
            beta_end=0.012,
            beta_schedule="scaled_linear",
            timestep_spacing="leading",
            steps_offset=1,
        ),
    )


def _save_sdxl_control(clip: CLIPTokenizer, folder: Path) -> None:
    """Two networks in each step."""
    parts = _sdxl(clip).components
    controlnet = ControlNetModel.from_unet(parts["unet"])
    _wake(controlnet)
    with torch.no_grad():
        controlnet.controlnet_cond_embedding.conv_out.weight.mul_(30.0)
    del parts["image_encoder"], parts["feature_extractor"]
    StableDiffusionXLControlNetPipeline(**parts, controlnet=controlnet).save_pretrained(folder)
    # The modular blocks of SDXL know of ControlNets, and are found by the plain pipeline's name.
    index = folder / "model_index.json"
    index.write_text(index.read_text().replace("StableDiffusionXLControlNetPipeline", "StableDiffusionXLPipeline"))


def _wake(network: torch.nn.Module) -> None:
    """Give weights to the layers that are zero before any training: what goes through them would not matter."""
    for weight in network.parameters():
        if weight.ndim > 1 and not weight.any():
            torch.nn.init.normal_(weight, std=0.3)


def _flux(clip: CLIPTokenizer, t5: PreTrainedTokenizerFast) -> FluxPipeline:
    return FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True),
        vae=AutoencoderKL(latent_channels=4, shift_factor=0.1, scaling_factor=0.36, **_NO_QUANT, **_VAE),
        text_encoder=CLIPTextModel(_CLIP),
        tokenizer=clip,
        text_encoder_2=T5EncoderModel(T5Config(d_model=32, **_T5)),
        tokenizer_2=t5,
        transformer=FluxTransformer2DModel(
            patch_size=1,
            in_channels=16,
            num_layers=2,
            num_single_layers=2,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            axes_dims_rope=[4, 4, 8],
            guidance_embeds=True,
        ),
    )


def _sd3(clip: CLIPTokenizer, t5: PreTrainedTokenizerFast) -> StableDiffusion3Pipeline:
    return StableDiffusion3Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=AutoencoderKL(latent_channels=16, shift_factor=0.06, scaling_factor=1.5, **_NO_QUANT, **_VAE),
        text_encoder=CLIPTextModelWithProjection(_CLIP),
        tokenizer=clip,
        text_encoder_2=CLIPTextModelWithProjection(_CLIP),
        tokenizer_2=clip,
        text_encoder_3=T5EncoderModel(T5Config(d_model=64, **_T5)),
        tokenizer_3=t5,
        transformer=SD3Transformer2DModel(
            sample_size=16,
            patch_size=2,
            in_channels=16,
            num_layers=2,
            attention_head_dim=8,
            num_attention_heads=4,
            caption_projection_dim=32,
            joint_attention_dim=64,
            pooled_projection_dim=64,
            out_channels=16,
            pos_embed_max_size=32,
        ),
    )


def _wan(t5: PreTrainedTokenizerFast, in_channels: int, **more: int) -> dict[str, object]:
    return {
        "tokenizer": t5,
        "text_encoder": UMT5EncoderModel(UMT5Config(d_model=32, **_T5)),
        "vae": AutoencoderKLWan(
            base_dim=8, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1, temperal_downsample=[False, True, True]
        ),
        "scheduler": UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0),
        "transformer": _wan_transformer(in_channels, **more),
    }


def _wan_transformer(in_channels: int, **more: int) -> WanTransformer3DModel:
    network = WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=24,
        in_channels=in_channels,
        out_channels=16,
        text_dim=32,
        freq_dim=64,
        ffn_dim=64,
        num_layers=2,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        rope_max_seq_len=64,
        **more,
    )
    # At random, what the prompt and the first frame say would hardly be seen in a byte of a pixel.
    with torch.no_grad():
        for block in network.blocks:
            block.attn2.to_out[0].weight.mul_(8.0)
        network.patch_embedding.weight[:, 16:].mul_(4.0)
        network.proj_out.weight.mul_(4.0)
    return network


def _wan22(t5: PreTrainedTokenizerFast) -> WanPipeline:
    """Two networks, one after the other: the second takes over where half of the noise is gone."""
    return WanPipeline(**_wan(t5, in_channels=16), transformer_2=_wan_transformer(16), boundary_ratio=0.5)


def _wan_i2v(t5: PreTrainedTokenizerFast) -> WanImageToVideoPipeline:
    vision = CLIPVisionConfig(
        hidden_size=4,
        projection_dim=4,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=32,
        intermediate_size=16,
        patch_size=1,
    )
    return WanImageToVideoPipeline(
        **_wan(t5, in_channels=36, image_dim=4),
        image_processor=CLIPImageProcessor(crop_size=32, size=32),
        image_encoder=CLIPVisionModelWithProjection(vision),
    )
