"""A diffusers checkpoint seen from outside: its blocks by stage, what they declare, and what the router must know.

No weights are loaded here. The stages are the library's own: the sub-blocks of the checkpoint's Modular Diffusers
blocks; everything before "denoise" is the encoder's, everything after it the decoder's.
"""

import math
import os
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from diffusers import ModularPipeline

from services.stage.block_contract import BlockContract, read_contracts
from triptych.v1.worker_pb2 import MEDIA_KIND_IMAGE, MEDIA_KIND_VIDEO, DeclaredInput, ModelProfile

DENOISE = "denoise"
_SAMPLE_BYTES = 64 * 1024
_SAMPLE_COUNT = 64


class CheckpointError(Exception):
    """A checkpoint that cannot be served; the message says which and why."""


@dataclass(frozen=True)
class Checkpoint:
    """One model's checkpoint: a folder, or a hub id, in the modular or the plain `model_index.json` layout."""

    name: str
    place: str
    # Inputs that its blocks declare and that do not work with it.
    withdrawn_inputs: frozenset[str] = frozenset()

    @cached_property
    def pipeline(self) -> Any:
        """The whole pipeline without weights, as diffusers describes it. Raises `CheckpointError`."""
        try:
            pipeline = ModularPipeline.from_pretrained(self.place)
        except Exception as error:
            raise CheckpointError(f"model {self.name}: cannot read {self.place}: {error}") from error
        if DENOISE not in pipeline._blocks.sub_blocks:
            raise CheckpointError(f"model {self.name}: {self.place} has no block named {DENOISE!r}")
        return pipeline

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
        spec = self.pipeline._component_specs.get("vae")
        if spec is None or spec.pretrained_model_name_or_path is None:
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
            spec = self.pipeline._component_specs.get(name)
            if spec is not None and spec.pretrained_model_name_or_path is not None:
                config: dict[str, Any] = spec.type_hint.load_config(
                    spec.pretrained_model_name_or_path, subfolder=spec.subfolder
                )
                return config
        return {}

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything in the folder that shapes a result: small files whole, weights by size, header, samples.

        Sixty-four samples of 64 KiB tell two fine-tunes apart without reading gigabytes. For a hub id: the id and the
        revision that diffusers resolved.
        """
        digest = blake2b(digest_size=16)
        folder = Path(self.place)
        if not folder.is_dir():
            digest.update(f"{self.place}@{_revision(self.place)}".encode())
            return digest.hexdigest()
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(str(path.relative_to(folder)).encode())
            _hash_file(path, digest)
        return digest.hexdigest()

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


def _hash_file(path: Path, digest: Any) -> None:
    size = path.stat().st_size
    digest.update(size.to_bytes(8, "little"))
    with path.open("rb") as file:
        if size <= _SAMPLE_BYTES * _SAMPLE_COUNT:
            digest.update(file.read())
            return
        for index in range(_SAMPLE_COUNT):
            file.seek((size - _SAMPLE_BYTES) * index // (_SAMPLE_COUNT - 1), os.SEEK_SET)
            digest.update(file.read(_SAMPLE_BYTES))


def _revision(hub_id: str) -> str:
    from huggingface_hub import try_to_load_from_cache

    for index in ("modular_model_index.json", "model_index.json"):
        cached = try_to_load_from_cache(hub_id, index)
        if isinstance(cached, str):
            return Path(cached).parent.name
    return "unresolved"
