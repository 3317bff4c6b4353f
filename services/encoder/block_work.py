"""One run of one block for one job."""

from dataclasses import dataclass
from typing import Any

import torch

from services.encoder.text_readings import Tokenized, observe_tokenizers, text_readings
from services.stage.device_thread import DeviceThread
from services.stage.hosted_model import HostedModel
from services.stage.job_inputs import GENERATOR_STATE
from services.stage.tensors import is_carried, to_bundle
from triptych.exchange import Bundle
from triptych.v1.job_pb2 import TextReading


@dataclass(frozen=True)
class BlockResult:
    """What came of a run: the bundle of what later blocks want, the device time it took, and what of texts was read."""

    bundle: Bundle
    device_s: float
    texts: list[TextReading]


@dataclass(frozen=True)
class BlockWork:
    """A block, a job's inputs, and values of earlier blocks. `noise` is a fresh generator if the block draws."""

    model: HostedModel
    name: str
    inputs: dict[str, Any]
    guidance: float | None
    values: dict[str, tuple[Any, str]]
    noise: torch.Generator | None = None

    @property
    def texts(self) -> dict[str, str]:
        """The job's texts that the block takes, by input."""
        declared = self.model.checkpoint.contracts[self.name].inputs
        return {name: value for name, value in self.inputs.items() if isinstance(value, str) and name in declared}

    def run(self, thread: DeviceThread) -> BlockResult:
        """Run it, on the device thread."""
        began = thread.clock_s()
        outputs, seen = self.outputs()
        bundle = to_bundle(outputs)
        return BlockResult(bundle, thread.clock_s() - began, text_readings(seen, [self.texts])[0])

    def outputs(self) -> tuple[dict[str, tuple[Any, str]], list[Tokenized]]:
        """What later blocks want of the result, by name with its kind of input, and what was tokenized.

        On the device thread.
        """
        hosted = self.model.block(self.name)
        values, inputs = dict(self.values), dict(self.inputs)
        drawn = values.pop(GENERATOR_STATE, None)
        if self.noise is not None:
            if drawn is not None:
                self.noise.set_state(drawn[0].cpu())
            inputs["generator"] = self.noise
        fork = hosted.fork(self.guidance)
        seen = observe_tokenizers(fork)
        state = hosted.run(fork, values, inputs)
        outputs = {name: value for name, value in hosted.outputs(state).items() if is_carried(value[0])}
        if self.noise is not None:
            outputs[GENERATOR_STATE] = (self.noise.get_state(), "")
        return outputs, seen
