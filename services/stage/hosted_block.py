"""One block of a pipeline in memory: its components with weights, ready to run for one job after another."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog
import torch
from diffusers import SchedulerMixin
from diffusers.guiders import BaseGuidance
from diffusers.models.autoencoders.vae import AutoencoderMixin
from diffusers.modular_pipelines.modular_pipeline import LoopSequentialPipelineBlocks, PipelineState

from services.stage.block_contract import BlockContract
from services.stage.checkpoint import DENOISE, Checkpoint, CheckpointError
from services.stage.component_files import is_module
from services.stage.module_fork import fork_module
from triptych.errors import Violation, invalid

log = structlog.get_logger()
# Components that keep a state from step to step: every job has its own. (A VAE keeps one from frame to frame.)
_STATEFUL = (SchedulerMixin, BaseGuidance)
# What of the job's inputs decides its size, with the field that it is from.
_SIZE_FIELDS = {"width": "spec.width", "height": "spec.height", "num_frames": "spec.frame_count"}


@dataclass(frozen=True)
class HostedBlock:
    """A block with its pipeline. Weights are shared between jobs; `fork` gives each job its own everything else."""

    checkpoint: Checkpoint
    name: str
    pipeline: Any

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        name: str,
        dtype: torch.dtype,
        device: torch.device,
        between: Callable[[], None] = lambda: None,
    ) -> "HostedBlock":
        """Load the components of this block alone, weights from safetensors only. Raises `CheckpointError`.

        `between` is called before each of them.
        """
        pipeline = checkpoint.block_pipeline(name)
        shell = checkpoint.vae_shell if name == DENOISE else None
        for component, spec in checkpoint.stored(pipeline).items():
            if component in checkpoint.loaded_by(name):
                between()
                loaded = _load_component(checkpoint, component, spec, dtype, device)
                pipeline.register_components(**{component: loaded})
        if shell is not None:
            pipeline.vae = shell
        _check_device(checkpoint, name, pipeline, device)
        return cls(checkpoint, name, pipeline)

    @property
    def contract(self) -> BlockContract:
        return self.checkpoint.contracts[self.name]

    @property
    def networks(self) -> dict[str, torch.nn.Module]:
        """Its components with weights, by name: a VAE of which only the shape is wanted has none."""
        modules = {name: part for name, part in self.pipeline.components.items() if isinstance(part, torch.nn.Module)}
        return {name: part for name, part in modules.items() if not any(weight.is_meta for weight in part.parameters())}

    def fork(self, guidance: float | None = None) -> Any:
        """A pipeline of one job: own blocks, schedulers, guiders and VAEs, shared weights.

        Takes 0.1 to 0.5 ms, and 1 to 2 ms more where there is a VAE.
        """
        fork = copy.copy(self.pipeline)
        fork._blocks = copy.deepcopy(self.pipeline._blocks)
        for name, component in self.pipeline.components.items():
            if isinstance(component, _STATEFUL):
                setattr(fork, name, guided(component, guidance))
        for name, network in self.networks.items():
            if isinstance(network, AutoencoderMixin):
                setattr(fork, name, fork_module(network))
        for loop in loops(fork._blocks):
            loop.set_progress_bar_config(disable=True)
        return fork

    def run(self, fork: Any, values: Mapping[str, tuple[Any, str]], inputs: Mapping[str, Any]) -> PipelineState:
        """Run the block on values of earlier blocks and on a job's inputs; those it does not declare are left out.

        What an earlier block made of an input (a longer prompt, say) is in its place. Raises `TriptychError`
        (INVALID_FIELD) if the block gives the job another size than was asked for, priced and admitted. As the
        pipeline's own call does it, but for its looking up of what the block declares and its deep copy of the
        state, which together take longer than a small model's step.
        """
        state = PipelineState()
        for name, (value, kind) in values.items():
            state.set(name, value, kind or None)
        for param in self.contract.params:
            if param.name and param.name not in state.values:
                state.set(param.name, inputs.get(param.name, param.default), param.kwargs_type)
        with torch.no_grad():
            _, state = fork._blocks(fork, state)
        _check_size(state, inputs)
        return state

    def outputs(self, state: PipelineState) -> dict[str, tuple[Any, str]]:
        """What a later block declares as an input, with its kind of input. None is left out: it says nothing."""
        contract = self.contract
        values = {name: (state.get(name), kind) for name, kind in contract.outputs.items() if name in contract.carried}
        return {name: value for name, value in values.items() if value[0] is not None}


def _check_size(state: PipelineState, inputs: Mapping[str, Any]) -> None:
    violations = [
        Violation(field, f"is {inputs[name]}; the model makes {made} of it: ask for that")
        for name, field in _SIZE_FIELDS.items()
        if name in inputs and (made := state.get(name)) is not None and made != inputs[name]
    ]
    if violations:
        raise invalid(*violations)


def guiders(pipeline: Any) -> dict[str, Any]:
    """The guiders of a pipeline by component name."""
    return {name: part for name, part in pipeline.components.items() if isinstance(part, BaseGuidance)}


def guided(stock: Any, guidance: float | None) -> Any:
    """A job's own copy of a component; a guider takes the job's scale."""
    own = copy.deepcopy(stock)
    if guidance is not None and isinstance(own, BaseGuidance) and hasattr(own, "guidance_scale"):
        own.guidance_scale = guidance
    return own


def loops(block: Any) -> Iterator[LoopSequentialPipelineBlocks]:
    """Every denoising loop inside a block, itself included."""
    if isinstance(block, LoopSequentialPipelineBlocks):
        yield block
        return
    for sub_block in (getattr(block, "sub_blocks", None) or {}).values():
        yield from loops(sub_block)


@contextmanager
def open_loops(fork: Any) -> Iterator[list[LoopSequentialPipelineBlocks]]:
    """The loops of a job's own pipeline: what is put in the place of their `loop_step` is there while the block runs.

    Then they have the stock one again. What calls it keeps the loop, which keeps that, and all else that the job has:
    jobs that are over would fill the device until the collector of cycles comes by, which knows nothing of tensors.
    """
    found = list(loops(fork._blocks))
    try:
        yield found
    finally:
        for loop in found:
            vars(loop).pop("loop_step", None)


def _load_component(checkpoint: Checkpoint, component: str, spec: Any, dtype: torch.dtype, device: torch.device) -> Any:
    options = {"dtype": dtype, "use_safetensors": True} if is_module(spec) else {}
    try:
        loaded = spec.load(**options)
    except Exception as error:
        raise CheckpointError(checkpoint.name, f"cannot load {component}: {checkpoint.fault(spec) or error}") from error
    log.debug("component_loaded", model=checkpoint.name, component=component)
    return loaded.to(device).eval() if isinstance(loaded, torch.nn.Module) else loaded


def _check_device(checkpoint: Checkpoint, name: str, pipeline: Any, device: torch.device) -> None:
    modules = [part for part in pipeline.components.values() if isinstance(part, torch.nn.Module)]
    if modules and pipeline._execution_device.type != device.type:
        raise CheckpointError(
            checkpoint.name, f"block {name} would run on {pipeline._execution_device}, not on {device}"
        )
