"""All blocks of one model that one stage runs, loaded when they are first wanted or ahead of it."""

from collections.abc import Callable
from typing import Any

import torch

from services.stage.checkpoint import Checkpoint
from services.stage.hosted_block import HostedBlock
from services.stage.job_inputs import job_inputs
from triptych.attachments import ATTACHMENT_INPUTS
from triptych.v1.job_pb2 import JobSpec


class HostedModel:
    """One model's blocks of one stage. Use it on the device thread only."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        names: list[str],
        dtype: torch.dtype,
        device: torch.device,
        prepare: Callable[[HostedBlock], None] = lambda hosted: None,
    ) -> None:
        """`prepare` is told of each block when it has been loaded."""
        self.checkpoint = checkpoint
        self.names = names
        self.dtype = dtype
        self.device = device
        self._prepare = prepare
        self._hosted: dict[str, HostedBlock] = {}

    def load(self, between: Callable[[], None] = lambda: None) -> None:
        """Load what every job needs; blocks that only some jobs trigger (an image encoder, say) wait for one.

        `between` is called before each component: other work may go first. Raises `CheckpointError`.
        """
        for name in self.names:
            if not self.checkpoint.contracts[name].triggers:
                self._load(name, between)

    def block(self, name: str) -> HostedBlock:
        """The block, loaded. Raises `CheckpointError`."""
        if name not in self._hosted:
            self._load(name)
        return self._hosted[name]

    @property
    def loaded(self) -> list[HostedBlock]:
        """The blocks that were loaded so far."""
        return list(self._hosted.values())

    def _load(self, name: str, between: Callable[[], None] = lambda: None) -> None:
        hosted = HostedBlock.load(self.checkpoint, name, self.dtype, self.device, between)
        self._prepare(hosted)
        self._hosted[name] = hosted

    def inputs(self, spec: JobSpec) -> dict[str, Any]:
        """A job's inputs for every block of the model; of its images those alone that blocks of this stage take.

        Raises `TriptychError` (INVALID_FIELD).
        """
        taken = {name for block in self.names for name in self.checkpoint.contracts[block].inputs}
        left = frozenset(ATTACHMENT_INPUTS.values()) - taken
        return job_inputs(spec, [param for param in self.checkpoint.inputs if param.name not in left])

    def wanted(self, inputs: dict[str, Any]) -> list[str]:
        """The blocks that these inputs make run, in order."""
        return [name for name in self.names if self.checkpoint.contracts[name].is_triggered(inputs)]
