"""A model's stock blocks run without weights: what its denoising network would compute, at the cost of its shapes.

Modules are on the meta device; around them everything runs as it does in earnest, on small CPU tensors. So the network
is called as its own blocks call it, whatever the family.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

from services.stage.checkpoint import DENOISE, Checkpoint
from services.stage.component_files import is_module
from services.stage.hosted_block import HostedBlock
from services.stage.job_inputs import guidance, job_inputs
from services.stage.tensors import is_carried
from triptych.v1.job_pb2 import JobSpec

_CPU = torch.device("cpu")


class _Counted(BaseException):
    """Ends the run when the first forward is counted. Not an Exception: diffusers logs every one that passes."""

    def __init__(self, flop: float) -> None:
        self.flop = flop


class DryRun:
    """Of one checkpoint. Raises whatever its blocks raise where they cannot do without their weights."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._blocks: dict[str, HostedBlock] = {}

    def forward_flop(self, spec: JobSpec) -> float:
        """Floating point operations of one forward over one sample of this job."""
        inputs = job_inputs(spec, self._checkpoint.inputs)
        values: dict[str, tuple[Any, str]] = {}
        for name in self._checkpoint.encode_names:
            if not self._checkpoint.contracts[name].triggers:
                values.update(self._run(name, spec, inputs, values))
        try:
            self._run(DENOISE, spec, inputs, values)
        except _Counted as counted:
            return counted.flop
        raise RuntimeError("the denoise block called no network")

    def _run(
        self, name: str, spec: JobSpec, inputs: dict[str, Any], values: dict[str, tuple[Any, str]]
    ) -> dict[str, tuple[Any, str]]:
        hosted = self._block(name)
        generator = torch.Generator().manual_seed(0)
        state = hosted.run(hosted.fork(guidance(spec)), values, {**inputs, "generator": generator})
        return {key: value for key, value in hosted.outputs(state).items() if is_carried(value[0])}

    def _block(self, name: str) -> HostedBlock:
        if name not in self._blocks:
            self._blocks[name] = HostedBlock(self._checkpoint, name, self._pipeline(name))
        return self._blocks[name]

    def _pipeline(self, name: str) -> Any:
        pipeline = self._checkpoint.block_pipeline(name)
        for component, spec in self._checkpoint.stored(pipeline).items():
            has_weights = spec.type_hint is not None and is_module(spec)
            pipeline.register_components(**{component: _shell(spec) if has_weights else spec.load()})
        networks = {key: part for key, part in pipeline.components.items() if isinstance(part, torch.nn.Module)}
        for network in networks.values():
            _add_seam(network, counts=name == DENOISE)
        # Told by the modules' own device otherwise: latents would be on the meta device too.
        pipeline.__class__ = type("DryPipeline", (type(pipeline),), {"_execution_device": _CPU})
        return pipeline


def _shell(spec: Any) -> torch.nn.Module:
    """The component without its weights."""
    kind, place, folder = spec.type_hint, spec.pretrained_model_name_or_path, spec.subfolder or ""
    with torch.device("meta"):
        if hasattr(kind, "from_config"):
            module = kind.from_config(kind.load_config(place, subfolder=folder))
        else:
            module = kind(kind.config_class.from_pretrained(place, subfolder=folder))
    shell: torch.nn.Module = module.to(torch.float32).eval()
    return shell


def _add_seam(network: torch.nn.Module, *, counts: bool) -> None:
    """Let the network's forward take CPU tensors and give zeros; or count it, and end the run."""
    stock = network.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if not counts:
            return tree_map(_to_zeros, _without_mask(stock, *tree_map(_to_meta, (args, kwargs))))
        args, kwargs = tree_map(_to_meta, (args, kwargs))
        counter = FlopCounterMode(display=False)
        with counter:
            stock(*args, **kwargs)
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor) and value.ndim > 2]
        raise _Counted(counter.get_total_flops() / max(tensor.shape[0] for tensor in tensors))

    network.forward = forward


def _without_mask(stock: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call it with no padding masked: text encoders look into their masks, which changes no shape."""
    call = signature(stock).bind(*args, **kwargs)
    if "attention_mask" in call.arguments:
        call.arguments["attention_mask"] = None
    return stock(*call.args, **call.kwargs)


def _to_meta(value: Any) -> Any:
    return value.to("meta") if isinstance(value, torch.Tensor) else value


def _to_zeros(value: Any) -> Any:
    return torch.zeros_like(value, device=_CPU) if isinstance(value, torch.Tensor) else value
