"""The decoding of one output: the stock blocks after "denoise", run on the device thread."""

from dataclasses import dataclass
from typing import Any

from services.decoder.pictures import Frames, frames_of
from services.decoder.preview_vae import PreviewVae
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
# With this input the blocks lay the result over the job's own picture, which they do with pictures only.
_OVERLAY = "padding_mask_crop"


@dataclass(frozen=True)
class DecodeWork:
    """One output of one job. `bundles` are its conditioning that a decode block declares, then its latents.

    From `tile_from_pixels` on (width × height) the VAE decodes in tiles: less memory at its peak. With `preview_vae` in
    place of the model's own VAE the same blocks make a preview.
    """

    model: HostedModel
    spec: JobSpec
    bundles: list[Bundle]
    tile_from_pixels: int | None = None
    preview_vae: PreviewVae | None = None

    def run(self, thread: DeviceThread) -> tuple[Frames, float]:
        """The frames (one for an image), and the device seconds they took.

        As numbers where the blocks allow it: making pictures of them is no device work.
        """
        began = thread.clock_s()
        values: dict[str, tuple[Any, str]] = {}
        for bundle in self.bundles:
            values.update(from_bundle(bundle, self.model.device))
        values.pop(GENERATOR_STATE, None)
        inputs = self.model.inputs(self.spec)
        inputs["output_type"] = "pil" if _OVERLAY in inputs else "np"
        frames = None
        for name in self.model.names:
            hosted = self.model.block(name)
            state = hosted.run(self._fork(hosted), values, inputs)
            values.update(hosted.outputs(state))
            result = next((state.get(name) for name in _RESULTS if state.get(name) is not None), None)
            # One output a call: the batch has one entry.
            frames = frames if result is None else frames_of(result[0])
        if frames is None:
            raise TriptychError(Reason.STAGE_FAILED, f"the model's last block gave none of {', '.join(_RESULTS)}")
        return frames, thread.clock_s() - began

    def _fork(self, hosted: HostedBlock) -> Any:
        fork = hosted.fork(guidance(self.spec))
        if self.preview_vae is None:
            self._set_tiling(fork)
        elif "vae" in fork.components:
            fork.vae = self.preview_vae
        return fork

    def _set_tiling(self, fork: Any) -> None:
        if self.tile_from_pixels is None or self.spec.width * self.spec.height < self.tile_from_pixels:
            return
        for component in fork.components.values():
            # The job's own VAE: the next job's is whole again.
            if hasattr(component, "use_tiling"):
                component.enable_tiling()
            if hasattr(component, "use_slicing"):
                component.enable_slicing()
