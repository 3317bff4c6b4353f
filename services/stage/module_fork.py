"""A module of one job's own: whatever it keeps on itself while it works is the job's, the weights are everybody's."""

from typing import TypeVar

import torch

_Module = TypeVar("_Module", bound=torch.nn.Module)


def fork_module(module: _Module) -> _Module:
    """The module and all its parts anew, over the same memory. Takes 1 to 2 ms for a large VAE.

    A VAE keeps its frame cache on itself, decodes in tiles if told to, and some blocks cast it to float32 for a call:
    all of that ends with the job's copy.
    """
    return _fork(module, {})


def _fork(module: _Module, done: dict[int, torch.nn.Module]) -> _Module:
    if id(module) in done:
        return done[id(module)]  # type: ignore[return-value]
    own = type(module).__new__(type(module))
    done[id(module)] = own
    for name, value in vars(module).items():
        vars(own)[name] = value.copy() if type(value) in (list, dict) else value
    vars(own)["_parameters"] = {name: _share(weight) for name, weight in module._parameters.items()}
    vars(own)["_buffers"] = dict(module._buffers)
    vars(own)["_modules"] = {
        name: None if part is None else _fork(part, done) for name, part in module._modules.items()
    }
    return own


def _share(weight: torch.nn.Parameter | None) -> torch.nn.Parameter | None:
    """The same memory under another name: a cast of it is the copy's. Quantized kinds are left as they are."""
    if type(weight) is not torch.nn.Parameter:
        return weight
    return torch.nn.Parameter(weight.detach(), requires_grad=weight.requires_grad)
