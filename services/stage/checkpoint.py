"""A diffusers checkpoint seen from outside: its blocks by stage, what they declare, and what the router must know.

No weights are loaded here. The stages are the library's own: the sub-blocks of the checkpoint's Modular Diffusers
blocks; everything before "denoise" is the encoder's, everything after it the decoder's.
"""

import contextlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import diffusers
import torch
from diffusers import ModularPipeline

from services.stage.block_contract import BlockContract, read_contracts
from services.stage.component_files import is_module
from services.stage.fingerprint import folder_fingerprint
from services.stage.folder_check import (
    Unsound,
    check_component,
    check_null,
    is_null,
    names_in,
    read_index,
    variant_of,
)
from triptych.v1.worker_pb2 import MEDIA_KIND_IMAGE, MEDIA_KIND_VIDEO, DeclaredInput, ModelProfile

DENOISE = "denoise"
# What diffusers says of a checkpoint in the plain layout whose class has no blocks.
_NO_BLOCKS = "No pipeline blocks could be resolved"


class CheckpointError(Exception):
    """A model that cannot be served. The message says which and `why`, and what to do.

    `passing`: it may pass by itself, though nothing changes in the model's folder.
    """

    def __init__(self, model: str, why: str, *, passing: bool = False) -> None:
        super().__init__(f"model {model}: {why}")
        self.why = why
        self.passing = passing


@dataclass(frozen=True)
class Checkpoint:
    """One model's checkpoint: a folder in the modular or the plain `model_index.json` layout."""

    name: str
    place: str
    # Inputs that its blocks declare and that do not work with it.
    withdrawn_inputs: frozenset[str] = frozenset()
    # Which weights to take ("fp16"); a component that has none of it has plain ones.
    variant: str | None = None
    # The hub id and the commit of a folder in the hub's cache. Not all of its files need be there.
    origin: str = ""

    @cached_property
    def pipeline(self) -> Any:
        """The whole pipeline without weights, as diffusers describes it. Raises `CheckpointError`."""
        kind = self._index.get("_class_name")
        try:
            pipeline = ModularPipeline.from_pretrained(self.place)
        except Exception as error:
            if not hasattr(diffusers, str(kind)) or _NO_BLOCKS in str(error):
                why = f"diffusers {diffusers.__version__} has no modular pipeline for class {kind}"
                raise CheckpointError(self.name, why) from error
            raise CheckpointError(self.name, f"cannot read {self.place}: {error}") from error
        if DENOISE not in pipeline._blocks.sub_blocks:
            raise CheckpointError(self.name, f"{self.place} has no block named {DENOISE!r}")
        return pipeline

    def block_pipeline(self, name: str) -> Any:
        """The pipeline of one block, without weights. Raises `CheckpointError`."""
        return self.blocks[name].init_pipeline(self.place)

    def stored(self, pipeline: Any) -> dict[str, Any]:
        """What of a pipeline lies in the checkpoint, as diffusers describes it; the rest is made from configs alone.

        Weights are of the catalog's variant.
        """
        found = {
            name: spec
            for name, spec in pipeline._component_specs.items()
            if spec.default_creation_method == "from_pretrained"
            and spec.pretrained_model_name_or_path is not None
            and not is_null(self._index.get(name))
        }
        for spec in found.values():
            if self._is_here(spec) and is_module(spec):
                with contextlib.suppress(Unsound):
                    spec.variant = variant_of(spec, names_in(self._folder, spec), self._wanted_variant(spec))
        return found

    def loaded_by(self, block: str) -> frozenset[str]:
        """The components that a block is loaded with: of a VAE only the shape is wanted while denoising."""
        return self.contracts[block].components - ({"vae"} if block == DENOISE else set())

    def check(self, blocks: Iterable[str]) -> None:
        """See whether all is there and whole that these blocks need for every job. Raises `CheckpointError`."""
        names = {part for name in blocks if not self.contracts[name].triggers for part in self.loaded_by(name)}
        try:
            check_null(self._index, names)
        except Unsound as error:
            raise CheckpointError(self.name, str(error)) from error
        for name, spec in self.stored(self.pipeline).items():
            if name in names and (why := self.fault(spec)):
                raise CheckpointError(self.name, why)

    def fault(self, spec: Any) -> str:
        """What is wrong with the files of one component, if they lie here; "" for nothing."""
        try:
            if self._is_here(spec):
                check_component(self._folder, spec, self._wanted_variant(spec))
        except Unsound as error:
            return str(error)
        return ""

    @property
    def _folder(self) -> Path:
        return Path(self.place)

    @cached_property
    def _index(self) -> dict[str, Any]:
        try:
            return read_index(self._folder)
        except Unsound as error:
            raise CheckpointError(self.name, str(error)) from error

    def _wanted_variant(self, spec: Any) -> str | None:
        """The catalog's, or the one that a modular index names."""
        variant: str | None = self.variant or spec.variant
        return variant

    def _is_here(self, spec: Any) -> bool:
        return bool(spec.pretrained_model_name_or_path == self.place)

    @cached_property
    def blocks(self) -> dict[str, Any]:
        """Every block by its name, in the order in which they run."""
        # The public property makes a deep copy at each use.
        return dict(self.pipeline._blocks.sub_blocks)

    @cached_property
    def inputs(self) -> list[Any]:
        """Every input that the pipeline as a whole declares (diffusers' `InputParam`s)."""
        return list(self.pipeline._blocks.inputs)

    @property
    def encode_names(self) -> list[str]:
        names = list(self.blocks)
        return names[: names.index(DENOISE)]

    @property
    def decode_names(self) -> list[str]:
        names = list(self.blocks)
        return names[names.index(DENOISE) + 1 :]

    @cached_property
    def contracts(self) -> dict[str, BlockContract]:
        """What each block declares."""
        return read_contracts(self.blocks)

    @cached_property
    def vae_shell(self) -> torch.nn.Module | None:
        """The VAE without weights, on the meta device: what knows the latents' shape. None if there is no VAE."""
        spec = self.stored(self.pipeline).get("vae")
        if spec is None:
            return None
        config = spec.type_hint.load_config(spec.pretrained_model_name_or_path, subfolder=spec.subfolder)
        with torch.device("meta"):
            shell: torch.nn.Module = spec.type_hint.from_config(config)
        return shell

    @cached_property
    def profile(self) -> ModelProfile:
        """What the router must know, read from the checkpoint's own configs."""
        pipeline = self.pipeline
        if self.vae_shell is not None:
            pipeline.vae = self.vae_shell
        outputs = {name for block in self.decode_names for name in self.contracts[block].outputs}
        return ModelProfile(
            name=self.name,
            fingerprint=self.fingerprint,
            media_kind=MEDIA_KIND_VIDEO if "videos" in outputs else MEDIA_KIND_IMAGE,
            vae_scale_factor=_first_attribute(pipeline, "vae_scale_factor", "vae_scale_factor_spatial") or 8,
            vae_temporal_factor=_first_attribute(pipeline, "vae_scale_factor_temporal") or 1,
            patch_size=self._patch_size(),
            text_token_count=self._text_token_count(),
            inputs=self._declared_inputs(),
        )

    def network_config(self) -> dict[str, Any]:
        """Config of the first network that denoises: the transformer or the UNet."""
        for name in ("transformer", "unet"):
            spec = self.stored(self.pipeline).get(name)
            if spec is not None:
                config: dict[str, Any] = spec.type_hint.load_config(
                    spec.pretrained_model_name_or_path, subfolder=spec.subfolder
                )
                return config
        return {}

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that is loaded and shapes a result; for a hub id: the id, the commit and the variant."""
        if self.origin:
            return blake2b(f"{self.origin} {self.variant}".encode(), digest_size=16).hexdigest()
        try:
            return folder_fingerprint(self._folder, self.pipeline, self.stored(self.pipeline))
        except Unsound as error:
            raise CheckpointError(self.name, str(error)) from error

    def _patch_size(self) -> int:
        config = self.network_config()
        if "down_block_types" in config:
            # A UNet's tokens are the cells where it first attends.
            attends = [index for index, kind in enumerate(config["down_block_types"]) if "Attn" in kind]
            return int(2 ** attends[0]) if attends else 1
        patch = config.get("patch_size", 1)
        patch = int(patch[-1] if isinstance(patch, list | tuple) else patch)
        return patch if patch > 1 else self._packing(config)

    def _packing(self, config: dict[str, Any]) -> int:
        """Latent cells per side that the pipeline packs into one token, told by the channels that go in."""
        latent_channels = getattr(getattr(self.vae_shell, "config", None), "latent_channels", 0)
        ratio = config.get("in_channels", 0) / latent_channels if latent_channels else 1
        side = math.isqrt(int(ratio))
        return side if side > 1 and side * side == ratio else 1

    def _text_token_count(self) -> int:
        for name in self.encode_names:
            for param in self.blocks[name].inputs:
                if param.name == "max_sequence_length" and isinstance(param.default, int):
                    return param.default
        return 0

    def _declared_inputs(self) -> list[DeclaredInput]:
        declared: dict[str, DeclaredInput] = {}
        for block in self.blocks.values():
            for param in block.inputs:
                if param.name and param.name not in declared and param.name not in self.withdrawn_inputs:
                    declared[param.name] = DeclaredInput(
                        name=param.name, type_hint=_hint(param.type_hint), required=bool(param.required)
                    )
        return list(declared.values())


def _first_attribute(owner: Any, *names: str) -> int | None:
    for name in names:
        value = getattr(owner, name, None)
        if value is not None:
            return int(value)
    return None


def _hint(type_hint: Any) -> str:
    if type_hint is None:
        return ""
    return type_hint.__name__ if isinstance(type_hint, type) else str(type_hint)
