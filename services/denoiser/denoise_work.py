"""The denoising of one output: the stock block, run on the device thread."""

from contextlib import closing
from dataclasses import dataclass
from typing import Any

import structlog
import torch

from services.denoiser.amendments import Amendments
from services.denoiser.forward_log import ForwardLog, forward_log
from services.denoiser.loop_state import LoopState
from services.denoiser.loop_steps import LoopSteps, StartAgain
from services.denoiser.preview_seam import PreviewSeam, PreviewTaker
from services.denoiser.refinement import LOOP_LATENTS, Refinement
from services.denoiser.state_codec import Uncapturable
from services.denoiser.step_seam import Observer, StepSeam, asked_step_count
from services.stage.checkpoint import DENOISE
from services.stage.device_thread import DeviceThread
from services.stage.hosted_block import open_loops
from services.stage.hosted_model import HostedModel
from services.stage.job_inputs import GENERATOR_STATE, guidance, noise
from services.stage.tensors import from_bundle, to_bundle
from triptych.errors import Reason, TriptychError, Violation, invalid
from triptych.exchange import Bundle
from triptych.v1.job_pb2 import JobSpec

log = structlog.get_logger()
LATENTS = "latents"


@dataclass(frozen=True)
class Denoised:
    """An output's latents, the device seconds they took, and the forwards among them."""

    latents: Bundle
    device_s: float
    forwards: ForwardLog


@dataclass(frozen=True)
class DenoiseWork:
    """One output of one job.

    `conditioning` are the bundles of the encoder's blocks, in their order; `resume` is the state to go on from, None to
    begin at the beginning. `amendments` has the step count to run, which may change meanwhile. `refined` are latents of
    another job that have run `refined_step_count` of its steps, to go on from instead of noise. `previews` is None for
    a job that wants none.
    """

    model: HostedModel
    spec: JobSpec
    output_index: int
    conditioning: list[Bundle]
    observer: Observer
    amendments: Amendments
    resume: Bundle | None = None
    refined: Bundle | None = None
    refined_step_count: int = 0
    previews: PreviewTaker | None = None

    def run(self, thread: DeviceThread) -> Denoised:
        """Run it, on the device thread. Raises `Stopped`, and whatever the block raises."""
        began, resume = thread.clock_s(), self.resume
        forwards = ForwardLog()
        forward_log.set(forwards)
        try:
            while True:
                try:
                    latents = to_bundle(self._outputs(resume))
                    return Denoised(latents, thread.clock_s() - began, forwards)
                except Uncapturable as error:
                    # Raised by a restore alone, before any step: a state of another version, say.
                    log.warning("checkpoint_left_aside", why=str(error))
                except StartAgain:
                    pass
                resume = None
        finally:
            self.amendments.end(self.output_index)

    def _outputs(self, resume: Bundle | None) -> dict[str, tuple[Any, str]]:
        hosted = self.model.block(DENOISE)
        fork = hosted.fork(guidance(self.spec))
        values = self._values()
        generator = noise(self.spec, self.output_index)
        assert generator is not None
        drawn = values.pop(GENERATOR_STATE, None)
        if drawn is not None:
            generator.set_state(drawn[0].cpu())
        captured = None if resume is None else from_bundle(resume, torch.device("cpu"))
        asked = JobSpec()
        asked.CopyFrom(self.spec)
        asked.step_count = self.amendments.step_count if captured is None else asked_step_count(captured)
        steps = LoopSteps(self.amendments, self.output_index, asked.step_count, laid=asked.step_count)
        seam = StepSeam(LoopState(fork, generator), self.observer, steps, captured, self._refinement())
        inputs = self.model.inputs(asked)
        with open_loops(fork) as found, closing(steps):
            for loop in found:
                if self.previews is not None:
                    PreviewSeam(fork, hosted.contract.defaults | inputs, self.previews, steps.clean).wrap(loop)
                seam.wrap(loop)
            state = hosted.run(fork, values, {**inputs, "generator": generator})
        outputs = hosted.outputs(state)
        _check_latents(outputs)
        made = outputs.get(LATENTS, (None, ""))[0]
        if made is not None and (made.shape != steps.latents.shape or not torch.equal(made, steps.latents)):
            outputs[LOOP_LATENTS] = (steps.latents, "")
        return outputs

    def _refinement(self) -> Refinement | None:
        if self.refined is None:
            return None
        values = from_bundle(self.refined, self.model.device)
        latents = values.get(LOOP_LATENTS) or values[LATENTS]
        return Refinement(latents[0], self.refined_step_count, self.spec.seed + self.output_index)

    def _values(self) -> dict[str, tuple[Any, str]]:
        values: dict[str, tuple[Any, str]] = {}
        for bundle in self.conditioning:
            values.update(from_bundle(bundle, self.model.device))
        return values


def _check_latents(outputs: dict[str, tuple[Any, str]]) -> None:
    for name, (value, _) in outputs.items():
        if isinstance(value, torch.Tensor) and not value.numel():
            raise invalid(Violation("spec.step_count", "no step is left to run: step_count × strength is below 1"))
        if isinstance(value, torch.Tensor) and value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise TriptychError(
                Reason.STAGE_FAILED, f"{name} are not finite: the model overflowed; another dtype or guidance may help"
            )
