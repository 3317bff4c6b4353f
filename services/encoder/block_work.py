"""One run of one block for one job."""

from dataclasses import dataclass
from typing import Any

import torch

from services.stage.device_thread import DeviceThread
from services.stage.hosted_model import HostedModel
from services.stage.job_inputs import GENERATOR_STATE
from services.stage.tensors import is_carried, to_bundle
from triptych.exchange import Bundle


@dataclass(frozen=True)
class BlockWork:
    """A block, a job's inputs, and values of earlier blocks. `noise` is a fresh generator if the block draws."""

    model: HostedModel
    name: str
    inputs: dict[str, Any]
    guidance: float | None
    values: dict[str, tuple[Any, str]]
    noise: torch.Generator | None = None

    def run(self, thread: DeviceThread) -> tuple[Bundle, float]:
        """Run it, on the device thread: the bundle of what later blocks want, and the seconds it took."""
        began = thread.clock_s()
        bundle = to_bundle(self.outputs())
        return bundle, thread.clock_s() - began

    def outputs(self) -> dict[str, tuple[Any, str]]:
        """What later blocks want of the result, by name with its kind of input. On the device thread."""
        hosted = self.model.block(self.name)
        values, inputs = dict(self.values), dict(self.inputs)
        drawn = values.pop(GENERATOR_STATE, None)
        if self.noise is not None:
            if drawn is not None:
                self.noise.set_state(drawn[0].cpu())
            inputs["generator"] = self.noise
        state = hosted.run(hosted.fork(self.guidance), values, inputs)
        outputs = {name: value for name, value in hosted.outputs(state).items() if is_carried(value[0])}
        if self.noise is not None:
            outputs[GENERATOR_STATE] = (self.noise.get_state(), "")
        return outputs
