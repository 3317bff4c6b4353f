"""The catalog (`models.toml`): which models there are, where they lie, what they default to, allow and cost."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from triptych.config import ConfigError, load_toml
from triptych.limits import MAX_FRAMES, MAX_OUTPUTS, MAX_SIDE, MAX_STEPS

DtypeName = Literal["float32", "float16", "bfloat16"]
# Of a model's limits.
_MOST = (
    ("max_side", MAX_SIDE),
    ("max_step_count", MAX_STEPS),
    ("max_frame_count", MAX_FRAMES),
    ("max_output_count", MAX_OUTPUTS),
)
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_HUB_ID = re.compile(r"\w[\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class Defaults:
    """What a field of a job that is not set stands for. `frame_count` and `fps` matter to videos only."""

    step_count: int = 30
    guidance: float = 5.0
    width: int = 1024
    height: int = 1024
    frame_count: int = 1
    fps: float = 16.0


@dataclass(frozen=True)
class Limits:
    """What a job may ask for, at most. Sides in pixels; `max_pixels` is width × height.

    No more than `triptych.limits` allows any job.
    """

    min_side: int = 64
    max_side: int = 2048
    max_pixels: int = 2048 * 2048
    max_step_count: int = 150
    max_frame_count: int = 1
    max_output_count: int = 4
    max_prompt_bytes: int = 8192

    def __post_init__(self) -> None:
        if not 0 < self.min_side <= self.max_side:
            raise ValueError("limits: 0 < min_side ≤ max_side must hold")
        for name, most in _MOST:
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"limits.{name} must be 1 to {most}")


@dataclass(frozen=True)
class Cost:
    """The prior of a model's price; measurements correct it.

    A denoise forward costs `forward_s + tokens / 1000 × tflop_per_ktoken / effective_tflops` seconds, `encode_s` is
    the text encoding, decoding costs `decode_s_per_megapixel` per 10⁶ pixels and frame, `load_s` is a cold start.
    Of a model whose `tflop_per_ktoken` is not given a worker counts the operations; where `effective_tflops` is not
    given, each worker's own measurement of its device holds.
    """

    tflop_per_ktoken: float | None = None
    effective_tflops: float | None = None
    forward_s: float = 0.0
    encode_s: float = 0.05
    decode_s_per_megapixel: float = 0.3
    load_s: float = 10.0


@dataclass(frozen=True)
class CatalogModel:
    """One model. `checkpoint` and `tiny_decoder` are folders beside the catalog, or hub ids.

    `dtype` holds for the denoiser and, unless `encoder_dtype` or `decoder_dtype` say otherwise, for the other stages.
    """

    checkpoint: str
    # A hub id's branch, tag or, so that all hosts have the same, commit; None: its main branch.
    revision: str | None = None
    # Takes weights like diffusion_pytorch_model.fp16.safetensors ("fp16"); a component that has none is loaded from its
    # plain ones.
    variant: str | None = None
    description: str = ""
    media_kind: Literal["image", "video"] = "image"
    dtype: DtypeName = "bfloat16"
    encoder_dtype: DtypeName | None = None
    decoder_dtype: DtypeName | None = None
    # Makes previews: an `AutoencoderTiny` that reads the model's latents. None: a linear map is fitted.
    tiny_decoder: str | None = None
    # Inputs that the model's blocks declare and that do not work with it: jobs that have them are refused.
    withdrawn_inputs: tuple[str, ...] = ()
    # Decode in tiles from this many pixels of one frame on; None: never.
    tile_from_pixels: int | None = 1536 * 1536
    defaults: Defaults = field(default_factory=Defaults)
    limits: Limits = field(default_factory=Limits)
    cost: Cost = field(default_factory=Cost)

    def __post_init__(self) -> None:
        if self.variant is not None and not _WORD.fullmatch(self.variant):
            raise ValueError(f'variant: {self.variant!r} is no variant; of model.fp16.safetensors it is "fp16"')
        if self.revision == "":
            raise ValueError("revision: must not be empty")


@dataclass(frozen=True)
class _CatalogFile:
    models: dict[str, CatalogModel]


@dataclass(frozen=True)
class Catalog:
    """All models by name; `folder` is where relative checkpoints lie."""

    models: dict[str, CatalogModel]
    folder: Path

    @classmethod
    def load(cls, path: Path) -> "Catalog":
        """Read `models.toml`. Raises `ConfigError` that names the key at fault."""
        models = load_toml(_CatalogFile, path).models
        if not models:
            raise ConfigError(f"{path}: names no model")
        return cls(models, path.resolve().parent)

    def checkpoint(self, name: str) -> str:
        """Where the model of this name lies: a folder, or the hub id as it stands. Raises `KeyError`, `ConfigError`."""
        return self._locate(f"models.{name}.checkpoint", self.models[name].checkpoint)

    def tiny_decoder(self, name: str) -> str | None:
        """Where its tiny decoder lies, if it has one. Raises `KeyError`, `ConfigError`."""
        place = self.models[name].tiny_decoder
        return None if place is None else self._locate(f"models.{name}.tiny_decoder", place)

    def _locate(self, key: str, place: str) -> str:
        folder = self.folder / place
        if folder.is_dir():
            return str(folder)
        # A folder beside the catalog whose name begins like this was meant: nobody wants to wait for the hub's answer.
        if not _HUB_ID.fullmatch(place) or (self.folder / place).parent.is_dir():
            raise ConfigError(f"{key}: there is no folder {folder}")
        return place
