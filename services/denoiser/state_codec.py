"""The state of a denoising loop as values that the exchange carries, and back. Typed, never pickled.

The exchange has tensors, numbers, text, lists and tuples. Here a tuple whose first item is a tag stands for the rest:
a tensor that must stay on the CPU, a dtype, the job's noise generator, a component of its pipeline (the network that is
in use, of two), a numpy array or scalar, a dictionary, an object of diffusers' own (a guider's momentum).
"""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

MAX_DEPTH = 6
# Objects of these packages are rebuilt by setting their attributes; no code of theirs is run.
_OBJECT_PACKAGES = ("diffusers.guiders.", "diffusers.schedulers.")


class Uncapturable(Exception):
    """A value that cannot be carried: a job that has it can only be started again."""


class StateCodec:
    """Of one job: `generator` is the one that its loop draws from, whose own state travels by itself.

    So does the state of its `components`, where one has any: a value that is one of them travels as its name.
    """

    def __init__(
        self, generator: torch.Generator, device: torch.device, components: Mapping[str, Any] | None = None
    ) -> None:
        self._generator = generator
        self._device = device
        self._components = components or {}

    def encode(self, value: Any, depth: int = 0) -> Any:
        """The value in the exchange's terms; tensors are copied to the CPU. Raises `Uncapturable`."""
        if depth > MAX_DEPTH:
            raise Uncapturable(f"nested deeper than {MAX_DEPTH}")
        if value is None or type(value) in (bool, int, float, str, bytes):
            return value
        if isinstance(value, list):
            return [self.encode(item, depth + 1) for item in value]
        if isinstance(value, tuple):
            return ("tuple", [self.encode(item, depth + 1) for item in value])
        if isinstance(value, dict):
            return (
                "dict",
                [(self.encode(key, depth + 1), self.encode(item, depth + 1)) for key, item in value.items()],
            )
        for name, component in self._components.items():
            if value is component:
                return ("component", name)
        array = self._encode_array(value)
        return self._encode_object(value, depth) if array is None else array

    def decode(self, value: Any) -> Any:
        """The value that was encoded, tensors where they were: on the CPU, or on the device. Raises `Uncapturable`."""
        if isinstance(value, torch.Tensor):
            return value.to(self._device)
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, tuple):
            return value
        match value:
            case ("cpu", torch.Tensor() as tensor):
                return tensor.cpu()
            case ("dtype", str(name)) if isinstance(getattr(torch, name, None), torch.dtype):
                return getattr(torch, name)
            case ("generator",):
                return self._generator
            case ("component", str(name)) if name in self._components:
                return self._components[name]
            case ("array", str(dtype), torch.Tensor() as tensor):
                return tensor.cpu().numpy().astype(dtype)
            case ("scalar", str(dtype), item):
                return np.dtype(dtype).type(item)
            case ("tuple", list(items)):
                return tuple(self.decode(item) for item in items)
            case ("dict", list(pairs)):
                return {self.decode(key): self.decode(item) for key, item in pairs}
            case ("object", str(module), str(name), attributes):
                return _rebuild(module, name, self.decode(attributes))
        raise Uncapturable(f"a value tagged {value[:1]}")

    def _encode_array(self, value: Any) -> Any:
        """Arrays and what torch tells of them; None for anything else."""
        if isinstance(value, torch.Tensor):
            copy = value.detach().to("cpu", copy=True)
            return ("cpu", copy) if value.device.type == "cpu" else copy
        if isinstance(value, torch.dtype):
            return ("dtype", str(value).removeprefix("torch."))
        if value is self._generator:
            return ("generator",)
        if isinstance(value, np.ndarray):
            return ("array", str(value.dtype), torch.from_numpy(np.array(value)))
        if isinstance(value, np.generic):
            return ("scalar", str(value.dtype), value.item())
        return None

    def _encode_object(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if not is_rebuildable(kind):
            raise Uncapturable(f"a {kind.__module__}.{kind.__qualname__}")
        return ("object", kind.__module__, kind.__qualname__, self.encode(dict(vars(value)), depth + 1))


def _rebuild(module: str, name: str, attributes: dict[str, Any]) -> Any:
    kind = getattr(sys.modules.get(module), name, None)
    if not isinstance(kind, type) or not is_rebuildable(kind) or kind.__module__ != module:
        raise Uncapturable(f"a {module}.{name}")
    made: Any = object.__new__(kind)
    vars(made).update(attributes)
    return made


def is_rebuildable(kind: type) -> bool:
    """Whether its objects are no more than their attributes, and come from a package that we trust with that."""
    plain = kind.__bases__ == (object,) and "__slots__" not in vars(kind)
    return plain and f"{kind.__module__}.".startswith(_OBJECT_PACKAGES)
