"""What the stock pipeline makes of a job, in this process: the measure of exactness."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import ModularPipeline
from PIL import Image

from services.stage.hosted_block import guided, guiders
from services.stage.job_inputs import guidance, job_inputs
from triptych.catalog import Catalog
from triptych.v1.job_pb2 import JobSpec


class StockPipelines:
    """Whole `ModularPipeline`s of a folder's catalog, as anyone would use them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded: dict[str, Any] = {}

    def frames(self, spec: JobSpec, output_index: int = 0, **inputs: str | Image.Image) -> np.ndarray[Any, Any]:
        """Return what one call with `seed + output_index` gives: uint8, frames × height × width × 3.

        `inputs` are texts and images as the test gives them, whatever the service makes of the spec.
        """
        pipeline = self.pipeline(spec.model)
        for name, guider in guiders(pipeline).items():
            setattr(pipeline, name, guided(guider, guidance(spec)))
        state = pipeline(
            **{**job_inputs(spec, pipeline.blocks.inputs), **inputs},
            generator=torch.Generator().manual_seed(spec.seed + output_index),
            output_type="pil",
        )
        result = (state.get("images") or state.get("videos"))[0]
        return np.stack([np.asarray(frame) for frame in (result if isinstance(result, list) else [result])])

    def pipeline(self, name: str) -> Any:
        """A model's, loaded once."""
        if name not in self._loaded:
            pipeline = ModularPipeline.from_pretrained(Catalog.load(self._folder / "models.toml").checkpoint(name))
            pipeline.load_components(dtype=torch.float32)
            pipeline.set_progress_bar_config(disable=True)
            self._loaded[name] = pipeline
        return self._loaded[name]


def frames_of(data: bytes) -> np.ndarray[Any, Any]:
    """The frames of a PNG, animated or not: uint8, frames × height × width × 3."""
    picture = Image.open(io.BytesIO(data))
    frames = []
    for index in range(getattr(picture, "n_frames", 1)):
        picture.seek(index)
        frames.append(np.asarray(picture.convert("RGB")))
    return np.stack(frames)
