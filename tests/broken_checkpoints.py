"""Checkpoints that cannot be served: a good one, broken in one way each, and what is to be said of it."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

INDEX = "model_index.json"
UNET = "unet/diffusion_pytorch_model.safetensors"
TEXT = "text_encoder/model.safetensors"
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 123456\n"


@dataclass(frozen=True)
class Fault:
    """`damage` breaks a whole checkpoint; `words` is a pattern of the reason."""

    damage: Callable[[Path], None]
    words: str


def break_checkpoints(good: Path, folder: Path) -> None:
    """Write a copy of a good checkpoint, broken, for each of `FAULTS`."""
    for name, fault in FAULTS.items():
        shutil.copytree(good, folder / name)
        fault.damage(folder / name)


def mend(good: Path, folder: Path) -> None:
    """Put a good checkpoint in the place of a broken one, file by file, as a download does."""
    shutil.copytree(good, folder, dirs_exist_ok=True)


def _cut(file: str, part: float) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        data = (folder / file).read_bytes()
        (folder / file).write_bytes(data[: int(len(data) * part)])

    return damage


def _write(file: str, text: str) -> Callable[[Path], None]:
    return lambda folder: _nothing((folder / file).write_text(text))


def _remove(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        shutil.rmtree(folder / name) if (folder / name).is_dir() else (folder / name).unlink()

    return damage


def _rename(file: str, new: str) -> Callable[[Path], None]:
    return lambda folder: _nothing((folder / file).rename(folder / new))


def _say(key: str, value: object) -> Callable[[Path], None]:
    """Another value in the index."""

    def damage(folder: Path) -> None:
        index = json.loads((folder / INDEX).read_text())
        (folder / INDEX).write_text(json.dumps({**index, key: value}))

    return damage


def _shard(folder: Path) -> None:
    """An index of two shards, of which one is not there."""
    (folder / UNET).rename(folder / "unet" / "diffusion_pytorch_model-00001-of-00002.safetensors")
    shards = {"a": "diffusion_pytorch_model-00001-of-00002.safetensors"}
    shards["b"] = "diffusion_pytorch_model-00002-of-00002.safetensors"
    (folder / f"{UNET}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))


def only_variant(folder: Path, variant: str = "fp16") -> None:
    """Weights of one variant, and no others."""
    for file in folder.glob("*/*.safetensors"):
        file.rename(file.with_name(f"{file.stem}.{variant}.safetensors"))


def _nothing(_: object) -> None:
    pass


FAULTS = {
    "truncated": Fault(_cut(UNET, 0.9), f"{UNET} is truncated: download it again"),
    "cut-early": Fault(_cut(TEXT, 0.001), f"{TEXT} is truncated: download it again"),
    "pointer": Fault(_write(UNET, POINTER), f"{UNET} is a Git LFS pointer, .*: git lfs pull"),
    "web-page": Fault(_write(UNET, "<html>" + "Not found. " * 99), f"{UNET} is no safetensors file: download it again"),
    "no-weights": Fault(_remove(UNET), "unet has no weights.*: download it again"),
    "no-shard": Fault(_shard, "unet/diffusion_pytorch_model-00002-of-00002.safetensors is missing: download it again"),
    "no-part": Fault(_remove("vae"), "there is no folder .*vae: download it again"),
    "bad-index": Fault(_write(INDEX, '{"_class_name": "Stable'), f"{INDEX} is no JSON .*: download it again"),
    "bad-config": Fault(_write("vae/config.json", "{"), "vae/config.json is no JSON .*: download it again"),
    "no-index": Fault(_remove(INDEX), "neither modular_model_index.json nor model_index.json"),
    "null": Fault(_say("vae", [None, None]), "vae is null in model_index.json"),
    "sd15": Fault(
        _say("_class_name", "StableDiffusionPipeline"), "no modular pipeline for class StableDiffusionPipeline"
    ),
    "nobodys": Fault(_say("_class_name", "MyOwnPipeline"), "no modular pipeline for class MyOwnPipeline"),
    "only-fp16": Fault(only_variant, 'has only weights of the variant fp16: set variant = "fp16"'),
    "pickled": Fault(_rename(UNET, "unet/diffusion_pytorch_model.bin"), "pickled weights only"),
    "missing": Fault(shutil.rmtree, "there is no folder .*missing"),
}
