"""What changes a checkpoint's fingerprint, and what does not: it is the same on two hosts that have the same model."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from services.stage.checkpoint import Checkpoint
from tests.broken_checkpoints import INDEX, TEXT, UNET

METADATA = "c0ffee\n5d1e\n1790000000.5\n"


@pytest.fixture
def copy_of(tiny_checkpoints: Path, tmp_path: Path) -> Path:
    """An SDXL checkpoint of the test's own."""
    return Path(shutil.copytree(tiny_checkpoints / "sdxl", tmp_path / "sdxl"))


def fingerprint(folder: Path, variant: str | None = None) -> str:
    return Checkpoint("sdxl", str(folder), variant=variant).fingerprint


def _age(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (1, 1))


def _link(folder: Path) -> None:
    """As it lies in a hub's cache: each file a link to one that is named by its content."""
    blobs = folder.parent / "blobs"
    blobs.mkdir()
    for index, path in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
        path.rename(blobs / str(index))
        path.symlink_to(os.path.relpath(blobs / str(index), path.parent))


UNRELATED = {
    "a hub's metadata": [".cache/huggingface/download/unet/config.json.metadata", ".cache/huggingface/.gitignore"],
    "git's own files": [".git/HEAD", ".git/objects/ab/cdef", ".gitattributes"],
    "a readme and pictures": ["README.md", "LICENSE.txt", "images/one.png", "unet/README.md"],
    "a desktop's files": [".DS_Store", "unet/.DS_Store", "tokenizer/.DS_Store"],
    "other kinds of weights": [
        "unet/diffusion_pytorch_model.bin",
        "text_encoder/flax_model.msgpack",
        "unet/model.onnx",
    ],
    "another variant": ["unet/diffusion_pytorch_model.fp16.safetensors", "text_encoder/model.fp16.safetensors"],
    "all of it in one file": ["sd_xl_base_1.0.safetensors"],
    "a component that the index does not name": ["safety_checker/config.json", "safety_checker/model.safetensors"],
}


@pytest.mark.parametrize("files", UNRELATED.values(), ids=UNRELATED)
def test_files_that_are_not_loaded_do_not_count(copy_of: Path, files: list[str]) -> None:
    before = fingerprint(copy_of)
    for file in files:
        (copy_of / file).parent.mkdir(parents=True, exist_ok=True)
        (copy_of / file).write_text(METADATA)
    assert fingerprint(copy_of) == before


@pytest.mark.parametrize("change", [_age, _link], ids=["times", "links"])
def test_how_files_are_stored_does_not_count(copy_of: Path, change: Callable[[Path], None]) -> None:
    before = fingerprint(copy_of)
    change(copy_of)
    assert fingerprint(copy_of) == before


def test_where_it_lies_does_not_count(copy_of: Path, tiny_checkpoints: Path) -> None:
    assert fingerprint(copy_of) == fingerprint(tiny_checkpoints / "sdxl")


@pytest.mark.parametrize("file", [UNET, TEXT, "vae/diffusion_pytorch_model.safetensors"])
@pytest.mark.parametrize("place", [0.5, 1.0])
def test_weights_count(copy_of: Path, file: str, place: float) -> None:
    before = fingerprint(copy_of)
    data = bytearray((copy_of / file).read_bytes())
    data[int(place * (len(data) - 1))] ^= 1
    (copy_of / file).write_bytes(data)
    assert fingerprint(copy_of) != before


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [
        ("unet/config.json", "norm_eps", 1e-4),
        ("text_encoder_2/config.json", "hidden_act", "gelu"),
        ("scheduler/scheduler_config.json", "beta_end", 0.013),
        ("tokenizer/tokenizer_config.json", "pad_token", "<other>"),
        (INDEX, "force_zeros_for_empty_prompt", False),
        (INDEX, "text_encoder", ["transformers", "CLIPTextModelWithProjection"]),
    ],
)
def test_configs_and_tokenizers_count(copy_of: Path, file: str, key: str, value: object) -> None:
    before = fingerprint(copy_of)
    content = json.loads((copy_of / file).read_text())
    assert content.get(key) != value
    (copy_of / file).write_text(json.dumps({**content, key: value}))
    assert fingerprint(copy_of) != before


def test_the_variant_that_is_loaded_counts(copy_of: Path) -> None:
    for name in (UNET, TEXT):
        path = copy_of / name
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.with_name(f"{path.stem}.fp16.safetensors").write_bytes(data)
    plain, half = fingerprint(copy_of), fingerprint(copy_of, "fp16")
    assert plain != half
    (copy_of / UNET).unlink()
    assert fingerprint(copy_of, "fp16") == half


def test_the_modular_layout_has_one_too(copy_of: Path, tmp_path: Path) -> None:
    """Its index names the folder in which it was saved: the same model in another place is the same."""
    Checkpoint("sdxl", str(copy_of)).pipeline.save_config(str(copy_of))
    (copy_of / INDEX).unlink()
    before = fingerprint(copy_of)
    (copy_of / "README.md").write_text(METADATA)
    assert fingerprint(Path(shutil.copytree(copy_of, tmp_path / "elsewhere"))) == before
    (copy_of / "unet" / "config.json").write_text((copy_of / "unet" / "config.json").read_text() + "\n")
    assert fingerprint(copy_of) != before
