"""Checkpoints from outside: what is read of them, and what is refused."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from services.stage.checkpoint import DENOISE, Checkpoint, CheckpointError
from services.stage.hosted_block import HostedBlock
from tests.broken_checkpoints import FAULTS, only_variant

CPU = torch.device("cpu")


@pytest.fixture
def copy_of(tiny_checkpoints: Path, tmp_path: Path) -> Path:
    """An SDXL checkpoint of the test's own."""
    return Path(shutil.copytree(tiny_checkpoints / "sdxl", tmp_path / "sdxl"))


@pytest.mark.parametrize(
    ("name", "patch_size", "temporal", "text_tokens"),
    [("sdxl", 2, 1, 0), ("flux", 2, 1, 512), ("sd3", 2, 1, 256), ("wan", 2, 4, 512), ("wan-i2v", 2, 4, 512)],
)
def test_shapes_come_from_the_models_own_configs(
    tiny_checkpoints: Path, name: str, patch_size: int, temporal: int, text_tokens: int
) -> None:
    profile = Checkpoint(name, str(tiny_checkpoints / name)).profile
    assert (profile.vae_scale_factor, profile.patch_size) == (8, patch_size)
    assert (profile.vae_temporal_factor, profile.text_token_count) == (temporal, text_tokens)
    assert "prompt" in {declared.name for declared in profile.inputs}


def test_a_stage_loads_its_own_components_alone(tiny_checkpoints: Path) -> None:
    checkpoint = Checkpoint("sdxl", str(tiny_checkpoints / "sdxl"))
    block = HostedBlock.load(checkpoint, DENOISE, torch.float32, CPU)
    modules = {name: part for name, part in block.pipeline.components.items() if isinstance(part, torch.nn.Module)}
    weighty = {name for name, part in modules.items() if next(part.parameters()).device.type != "meta"}
    assert weighty == {"unet"}


def test_jobs_share_weights_and_nothing_else(tiny_checkpoints: Path) -> None:
    block = HostedBlock.load(Checkpoint("sdxl", str(tiny_checkpoints / "sdxl")), DENOISE, torch.float32, CPU)
    one, other = block.fork(3.0), block.fork(5.0)
    assert one.unet is other.unet
    assert one.scheduler is not other.scheduler
    assert (one.guider.guidance_scale, other.guider.guidance_scale) == (3.0, 5.0)


@pytest.mark.parametrize(
    ("block", "weights"),
    [
        (DENOISE, "unet/diffusion_pytorch_model"),
        ("text_encoder", "text_encoder/model"),
        ("decode", "vae/diffusion_pytorch_model"),
    ],
)
def test_pickled_weights_are_never_loaded(copy_of: Path, block: str, weights: str) -> None:
    marker = copy_of / "ran"
    safe = copy_of / f"{weights}.safetensors"
    pickled = {"model": "pytorch_model"}.get(safe.stem, safe.stem)
    safe.with_name(f"{pickled}.bin").write_bytes(pickle.dumps(Marks(marker)))
    safe.unlink()
    with pytest.raises(CheckpointError, match=f"cannot load {safe.parent.name}: .* has pickled weights only"):
        HostedBlock.load(Checkpoint("mine", str(copy_of)), block, torch.float32, CPU)
    assert not marker.exists()


class Marks:
    """Pickled, it makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


def test_remote_code_is_never_run(copy_of: Path) -> None:
    marker = copy_of / "ran"
    (copy_of / "block.py").write_text(f"open({str(marker)!r}, 'w')\n")
    (copy_of / "modular_config.json").write_text(json.dumps({"auto_map": {"ModularPipelineBlocks": "block.Mine"}}))
    with pytest.raises(CheckpointError, match="mine"):
        _ = Checkpoint("mine", str(copy_of)).pipeline
    assert not marker.exists()


def test_a_folder_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"model mine: {tmp_path} has neither"):
        _ = Checkpoint("mine", str(tmp_path)).pipeline


def test_the_modular_layout_is_served_like_the_plain_one(copy_of: Path) -> None:
    plain = Checkpoint("mine", str(copy_of))
    profile = plain.profile
    plain.pipeline.save_config(str(copy_of))
    (copy_of / "model_index.json").unlink()
    assert (copy_of / "modular_model_index.json").is_file()
    modular = Checkpoint("mine", str(copy_of))
    assert modular.profile.inputs == profile.inputs
    assert modular.profile.patch_size == profile.patch_size
    for name, networks in (
        ("text_encoder", {"text_encoder", "text_encoder_2"}),
        (DENOISE, {"unet"}),
        ("decode", {"vae"}),
    ):
        assert set(HostedBlock.load(modular, name, torch.float32, CPU).networks) == networks


def test_inputs_that_the_catalog_withdraws_are_not_announced(tiny_checkpoints: Path) -> None:
    checkpoint = Checkpoint("sdxl", str(tiny_checkpoints / "sdxl"), frozenset({"image", "strength"}))
    announced = {declared.name for declared in checkpoint.profile.inputs}
    assert not announced & {"image", "strength"}
    assert "prompt" in announced


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_with_a_folder_is_said_with_what_to_do(tiny_checkpoints: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(tiny_checkpoints / "sdxl", tmp_path / name))
    FAULTS[name].damage(folder)
    checkpoint = Checkpoint("mine", str(folder))
    with pytest.raises(CheckpointError, match=FAULTS[name].words):
        checkpoint.check(checkpoint.blocks)


@pytest.mark.parametrize("model", ["sdxl", "flux", "sd3", "wan", "wan-i2v", "wan22", "sdxl-control"])
def test_a_whole_checkpoint_passes(tiny_checkpoints: Path, model: str) -> None:
    """One whose index has null where the stock pipeline can do without, too."""
    checkpoint = Checkpoint(model, str(tiny_checkpoints / model))
    checkpoint.check(checkpoint.blocks)


def test_weights_of_one_variant_are_loaded_where_the_catalog_names_it(copy_of: Path) -> None:
    stock = HostedBlock.load(Checkpoint("mine", str(copy_of)), DENOISE, torch.float32, CPU).networks["unet"]
    only_variant(copy_of)
    checkpoint = Checkpoint("mine", str(copy_of), variant="fp16")
    checkpoint.check(checkpoint.blocks)
    for name in ("text_encoder", "decode"):
        assert HostedBlock.load(checkpoint, name, torch.float32, CPU).networks
    unet = HostedBlock.load(checkpoint, DENOISE, torch.float32, CPU).networks["unet"]
    assert all(torch.equal(one, other) for one, other in zip(stock.parameters(), unet.parameters(), strict=True))


def test_the_modular_layout_takes_the_variant_too(copy_of: Path) -> None:
    Checkpoint("mine", str(copy_of)).pipeline.save_config(str(copy_of))
    (copy_of / "model_index.json").unlink()
    only_variant(copy_of)
    with pytest.raises(CheckpointError, match='set variant = "fp16"'):
        Checkpoint("mine", str(copy_of)).check(["text_encoder"])
    checkpoint = Checkpoint("mine", str(copy_of), variant="fp16")
    checkpoint.check(checkpoint.blocks)
    assert HostedBlock.load(checkpoint, DENOISE, torch.float32, CPU).networks


def test_a_component_without_that_variant_is_loaded_from_its_plain_weights(copy_of: Path) -> None:
    """As the stock pipelines do it."""
    weights = copy_of / "unet" / "diffusion_pytorch_model.safetensors"
    weights.rename(weights.with_name("diffusion_pytorch_model.fp16.safetensors"))
    checkpoint = Checkpoint("mine", str(copy_of), variant="fp16")
    checkpoint.check(checkpoint.blocks)
    for name in ("text_encoder", DENOISE):
        assert HostedBlock.load(checkpoint, name, torch.float32, CPU).networks


@pytest.mark.parametrize("variant", [None, "fp16"])
def test_shards_are_found_and_looked_at(copy_of: Path, variant: str | None) -> None:
    unet = HostedBlock.load(Checkpoint("mine", str(copy_of)), DENOISE, torch.float32, CPU).networks["unet"]
    (copy_of / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    unet.save_pretrained(copy_of / "unet", max_shard_size="100KB", variant=variant)  # type: ignore[operator]
    checkpoint = Checkpoint("mine", str(copy_of), variant=variant)
    checkpoint.check(checkpoint.blocks)
    assert HostedBlock.load(checkpoint, DENOISE, torch.float32, CPU).networks
    shard = sorted((copy_of / "unet").glob("*-00002-of-*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match=f"unet/{shard.name} is truncated"):
        checkpoint.check(checkpoint.blocks)
