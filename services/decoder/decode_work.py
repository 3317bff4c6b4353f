"""The decoding of one output: the stock blocks after "denoise", run on the device thread."""

from dataclasses import dataclass
from typing import Any

from PIL import Image

from services.stage.device_thread import DeviceThread
from services.stage.hosted_block import HostedBlock
from services.stage.hosted_model import HostedModel
from services.stage.job_inputs import GENERATOR_STATE, guidance
from services.stage.tensors import from_bundle
from triptych.errors import Reason, TriptychError
from triptych.exchange import Bundle
from triptych.v1.job_pb2 import JobSpec

# What the last block of a pipeline may call its result.
_RESULTS = ("images", "videos")


@dataclass(frozen=True)
class DecodeWork:
    """One output of one job. `bundles` are its conditioning that a decode block declares, then its latents."""

    model: HostedModel
    spec: JobSpec
    bundles: list[Bundle]
    tile_from_pixels: int | None

    def run(self, thread: DeviceThread) -> tuple[list[Image.Image], float]:
        """The frames (one for an image), and the device seconds they took."""
        began = thread.clock_s()
        values: dict[str, tuple[Any, str]] = {}
        for bundle in self.bundles:
            values.update(from_bundle(bundle, self.model.device))
        values.pop(GENERATOR_STATE, None)
        inputs = {**self.model.inputs(self.spec), "output_type": "pil"}
        frames = None
        for name in self.model.names:
            hosted = self.model.block(name)
            self._set_tiling(hosted)
            state = hosted.run(hosted.fork(guidance(self.spec)), values, inputs)
            values.update(hosted.outputs(state))
            frames = _frames(state) or frames
        if frames is None:
            raise TriptychError(Reason.STAGE_FAILED, f"the model's last block gave none of {', '.join(_RESULTS)}")
        return frames, thread.clock_s() - began

    def _set_tiling(self, hosted: HostedBlock) -> None:
        """Above a size, decode in tiles: less memory at its peak."""
        vae = hosted.pipeline.components.get("vae")
        if not hasattr(vae, "enable_tiling"):
            return
        pixels = self.spec.width * self.spec.height
        if self.tile_from_pixels is not None and pixels >= self.tile_from_pixels:
            vae.enable_tiling()
        else:
            vae.disable_tiling()


def _frames(state: Any) -> list[Image.Image] | None:
    for name in _RESULTS:
        result = state.get(name)
        if result is not None:
            # One output a call: the batch has one entry, which for a video is a list of frames.
            first = result[0]
            return list(first) if isinstance(first, list | tuple) else [first]
    return None
