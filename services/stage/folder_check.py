"""Finds what is wrong with a checkpoint's folder before anything is loaded, in words that say what to do."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import diffusers

from services.stage.component_files import (
    config_names,
    has_pickles,
    is_module,
    is_shard_index,
    variants,
    weights_name,
)

MODULAR_INDEX, PLAIN_INDEX = "modular_model_index.json", "model_index.json"
# More no safetensors file has, in bytes.
_MAX_HEADER = 100_000_000
_AGAIN = "download it again"


class Unsound(Exception):
    """A folder that cannot be served; the message says why and what to do, with paths as seen from the folder."""


def read_index(folder: Path) -> dict[str, Any]:
    """The content of the index that is in force. Raises `Unsound`."""
    if not folder.is_dir():
        raise Unsound(f"there is no folder {folder}")
    for name in (MODULAR_INDEX, PLAIN_INDEX):
        if (folder / name).is_file():
            return _read_json(folder, name)
    raise Unsound(
        f"{folder} has neither {MODULAR_INDEX} nor {PLAIN_INDEX}: it is no checkpoint in a layout of diffusers"
    )


def check_null(index: dict[str, Any], wanted: Iterable[str]) -> None:
    """Raise `Unsound` if the plain index has no component where the pipeline cannot do without."""
    kind = getattr(diffusers, str(index.get("_class_name")), None)
    spare = set(getattr(kind, "_optional_components", ()))
    for name in sorted(set(wanted) - spare):
        if is_null(index.get(name)):
            raise Unsound(f"{name} is null in {PLAIN_INDEX}: the checkpoint is not complete without it")


def is_null(entry: Any) -> bool:
    """Whether an entry of a plain index stands for a component that is not there."""
    return isinstance(entry, list | tuple) and len(entry) == 2 and entry[0] is None


def variant_of(spec: Any, names: set[str], variant: str | None) -> str | None:
    """The variant to load of a component: the wanted one, or the plain weights where there is none. Raises `Unsound`.

    As the stock pipelines do it.
    """
    for each in (variant, None):
        if weights_name(spec, names, each) is not None:
            return each
    part = spec.subfolder or spec.name
    if others := variants(spec, names):
        choice = " or ".join(f'variant = "{other}"' for other in others)
        raise Unsound(f"{part} has only weights of the variant {', '.join(others)}: set {choice} in the catalog")
    if has_pickles(names):
        raise Unsound(
            f"{part} has pickled weights only, which could run code: save them as safetensors (save_pretrained does)"
        )
    raise Unsound(f"{part} has no weights in safetensors files: {_AGAIN}")


def check_component(folder: Path, spec: Any, variant: str | None) -> None:
    """Raise `Unsound` if a component's files are not all there and whole."""
    names = names_in(folder, spec)
    for name in config_names(spec, names):
        if name.endswith(".json"):
            _read_json(folder, _path(spec, name))
    if is_module(spec):
        if "config.json" not in names:
            raise Unsound(f"{_path(spec, 'config.json')} is missing: {_AGAIN}")
        for name in loaded_weights(folder, spec, names, variant_of(spec, names, variant)):
            _check_weights(folder, _path(spec, name))


def names_in(folder: Path, spec: Any) -> set[str]:
    """The files in a component's folder. Raises `Unsound` if there is none."""
    own = folder / (spec.subfolder or "")
    if not own.is_dir():
        raise Unsound(f"there is no folder {spec.subfolder}: {_AGAIN}")
    return {path.name for path in own.iterdir() if path.is_file()}


def loaded_weights(folder: Path, spec: Any, names: set[str], variant: str | None) -> list[str]:
    """The weights files that are loaded of a variant, the index of their shards first. Raises `Unsound`."""
    name = weights_name(spec, names, variant)
    if name is None:
        return []
    return [name, *_shards(folder, _path(spec, name))] if is_shard_index(name) else [name]


def _shards(folder: Path, index: str) -> list[str]:
    try:
        return sorted(set(_read_json(folder, index)["weight_map"].values()))
    except (KeyError, AttributeError, TypeError) as error:
        raise Unsound(f"{index} does not name its shards: {_AGAIN}") from error


def _path(spec: Any, name: str) -> str:
    return f"{spec.subfolder}/{name}" if spec.subfolder else name


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads((folder / name).read_bytes())
    except ValueError as error:
        raise Unsound(f"{name} is no JSON ({error}): {_AGAIN}") from error
    if not isinstance(content, dict):
        raise Unsound(f"{name} is no JSON object: {_AGAIN}")
    return content


def _check_weights(folder: Path, name: str) -> None:
    """Raise `Unsound` unless a weights file is as long as its header says; of an index there is nothing to see."""
    if is_shard_index(name):
        return
    path = folder / name
    if not path.is_file():
        raise Unsound(f"{name} is missing: {_AGAIN}")
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        if head == b"version ":
            raise Unsound(f"{name} is a Git LFS pointer, not the file: git lfs pull")
        length = int.from_bytes(head, "little")
        if len(head) == 8 and length > _MAX_HEADER:
            raise Unsound(f"{name} is no safetensors file: {_AGAIN}")
        if len(head) < 8 or 8 + length > size:
            raise Unsound(f"{name} is truncated: {_AGAIN}")
        end = 8 + length + _data_end(name, file.read(length))
    if size != end:
        raise Unsound(f"{name} is truncated: {_AGAIN}" if size < end else f"{name} is longer than it says: {_AGAIN}")


def _data_end(name: str, header: bytes) -> int:
    try:
        tensors = json.loads(header)
        return max((entry["data_offsets"][1] for key, entry in tensors.items() if key != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise Unsound(f"{name} is no safetensors file: {_AGAIN}") from error
