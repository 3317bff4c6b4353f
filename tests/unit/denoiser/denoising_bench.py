"""A denoise stage of a tiny checkpoint in this process, for tests of what happens inside a denoising loop."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from services.denoiser.amendments import Amendments
from services.denoiser.denoise_work import DenoiseWork
from services.denoiser.step_seam import CapturedState
from services.stage.checkpoint import DENOISE, Checkpoint
from services.stage.device_thread import DeviceThread, Stopped
from services.stage.hosted_model import HostedModel
from services.stage.job_inputs import guidance
from services.stage.tensors import to_bundle
from triptych.exchange import Bundle
from triptych.v1.job_pb2 import JobSpec

CPU = torch.device("cpu")


def spec(model: str, seed: int = 1, step_count: int = 8, **more: object) -> JobSpec:
    return JobSpec(
        model=model,
        prompt="a red circle",
        # The stock blocks of SD3 guide by a negative prompt alone.
        negative_prompt="a blue square" if model == "sd3" else "",
        seed=seed,
        step_count=step_count,
        guidance=3.0,
        width=64,
        height=64,
        frame_count=9 if model.startswith("wan") else 0,
        output_count=1,
        **more,  # type: ignore[arg-type]
    )


@dataclass
class Watching:
    """An observer that notes everything. `stop_at`: capture the state after so many steps, and end the job."""

    label: str = ""
    log: list[str] = field(default_factory=list)
    stop_at: int | None = None
    every_step: bool = False
    before: Callable[[], None] = lambda: None
    states: list[CapturedState] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    _step: int = 0

    def before_step(self) -> None:
        if self.states and self.stop_at is not None:
            raise Stopped
        self.before()

    def after_step(self, step: int, step_count: int) -> None:
        self._step = step
        self.log.append(f"{self.label} step {step}")

    def checkpoint_due(self) -> bool:
        return self.every_step or self._step == self.stop_at

    def captured(self, step: int, state: CapturedState) -> None:
        self.states.append(state)

    def restart_only(self, reason: str) -> None:
        self.reasons.append(reason)


class DenoisingBench:
    """One model, its text block beside it, on the caller's thread."""

    def __init__(self, checkpoints: Path, name: str) -> None:
        self.name = name
        self.model = HostedModel(
            Checkpoint(name, str(checkpoints / name)), ["text_encoder", DENOISE], torch.float32, CPU
        )
        self._texts: dict[str, Bundle] = {}

    def work(
        self,
        job: JobSpec,
        observer: Watching,
        resume: Bundle | None = None,
        amendments: Amendments | None = None,
        **more: Any,
    ) -> DenoiseWork:
        amendments = amendments or Amendments(job.step_count)
        return DenoiseWork(self.model, job, 0, [self._text(job)], observer, amendments, resume, **more)

    def _text(self, job: JobSpec) -> Bundle:
        """The job's conditioning, from the stock text block."""
        if job.prompt not in self._texts:
            block = self.model.block("text_encoder")
            state = block.run(block.fork(guidance(job)), {}, self.model.inputs(job))
            self._texts[job.prompt] = to_bundle(block.outputs(state))
        return self._texts[job.prompt]


def bits(bundle: Bundle) -> list[bytes]:
    """A bundle's tensors, to compare."""
    return [bytes(entry.value.data) for entry in bundle.values()]  # type: ignore[union-attr]


async def run(thread: DeviceThread, work: DenoiseWork, rank: float = 1.0) -> Bundle:
    return (await thread.run((rank, ""), lambda: work.run(thread))).latents
