"""Which files of a component's folder are loaded: told by names alone, as the libraries choose them."""

import re
from collections.abc import Iterable, Iterator, Set
from typing import Any

import torch
from diffusers import ConfigMixin, ModelMixin

_DIFFUSERS, _TRANSFORMERS = "diffusion_pytorch_model", "model"
# What the names of weights files are cut at, and their parts that are no variant.
_PARTS, _FIXED = re.compile(r"\.|-\d+-of-\d+"), {"safetensors", "index", "json"}
# All files of these kinds count in a folder without weights: a tokenizer's, a processor's.
SMALL = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".vocab", ".bpe", ".spm")
_PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")


def is_module(spec: Any) -> bool:
    """Whether a component (a `ComponentSpec` of diffusers) has weights; of one without a type it is assumed."""
    return spec.type_hint is None or issubclass(spec.type_hint, torch.nn.Module)


def config_names(spec: Any, names: Iterable[str]) -> list[str]:
    """The small files that are loaded, of those in the component's folder."""
    if is_module(spec):
        wanted = {"config.json"}
    elif issubclass(spec.type_hint, ConfigMixin):
        wanted = {spec.type_hint.config_name}
    else:
        wanted = {name for name in names if name.endswith(SMALL) and not name.startswith(".")}
    return sorted(wanted.intersection(names))


def weights_name(spec: Any, names: Set[str], variant: str | None) -> str | None:
    """The file with the weights, or the index of its shards, which is loaded of one variant; None: there is none."""
    return next((name for name in _candidates(spec, variant) if name in names), None)


def variants(spec: Any, names: Set[str]) -> list[str]:
    """The variants of which there are weights."""
    parts = {part for name in names if name.startswith(_stems(spec)) for part in _PARTS.split(name)[1:] if part}
    return sorted(part for part in parts - _FIXED if weights_name(spec, names, part) is not None)


def is_shard_index(name: str) -> bool:
    return name.endswith(".json")


def has_pickles(names: Iterable[str]) -> bool:
    """Whether there are weights that reading would run as a program."""
    return any(name.endswith(_PICKLED) for name in names)


def _stems(spec: Any) -> tuple[str, ...]:
    if spec.type_hint is None:
        return (_DIFFUSERS, _TRANSFORMERS)
    return (_DIFFUSERS,) if issubclass(spec.type_hint, ModelMixin) else (_TRANSFORMERS,)


def _candidates(spec: Any, variant: str | None) -> Iterator[str]:
    """In the order in which the component's library looks for them."""
    middle = f".{variant}" if variant else ""
    for stem in _stems(spec):
        single, shards = f"{stem}{middle}.safetensors", f"{stem}.safetensors.index{middle}.json"
        old = f"{stem}.safetensors{middle}.index.json"
        yield from (shards, old, single) if stem == _DIFFUSERS else (single, shards)
