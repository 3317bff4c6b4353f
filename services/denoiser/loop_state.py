"""What changes in a denoising loop: found by comparing, captured at a step's boundary, put back there."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from diffusers import SchedulerMixin
from diffusers.guiders import BaseGuidance

from services.denoiser.state_codec import StateCodec, Uncapturable, is_rebuildable

# Where a value of the loop lives: "state" is the loop's own, else the name of a component that steps.
_STATE = "state"
_Mark = tuple[int, int]


@dataclass
class LoopState:
    """The mutable values of one job's loop: its block state, every scheduler and guider, and its noise generator.

    `begin` notes what they are before the first step. `capture` takes those that are not the same any more, by identity
    and, for tensors changed in place, by version: no name is known here, so nothing a model family adds is missed.
    """

    pipeline: Any
    generator: torch.Generator
    _marks: dict[tuple[str, str], _Mark] = field(default_factory=dict)
    # Held, so that no new object can get the identity of an old one.
    _kept: list[Any] = field(default_factory=list)

    def begin(self, state: Any) -> None:
        """Note everything, before the first step is run or skipped."""
        for place, name, value in self._values(state):
            self._marks[place, name] = _mark(value)
            self._kept.append(value)

    def capture(self, step: int, state: Any) -> dict[str, tuple[Any, str]]:
        """Everything that has changed since the loop began, as bundle values. Raises `Uncapturable`, naming it."""
        codec = self._codec()
        captured: dict[str, tuple[Any, str]] = {
            "step": (step, ""),
            "generator": (self.generator.get_state(), ""),
        }
        for place, name, value in self._values(state):
            if self._marks.get((place, name)) != _mark(value):
                try:
                    captured[f"{place}.{name}"] = (codec.encode(value), "")
                except Uncapturable as error:
                    raise Uncapturable(f"{place}.{name} is {error}") from error
        return captured

    def restore(self, captured: dict[str, tuple[Any, str]], state: Any) -> None:
        """Put a captured state back, in place of the skipped steps. Raises `Uncapturable`."""
        drawn = captured.get("generator", (None, ""))[0]
        if not isinstance(drawn, torch.Tensor):
            raise Uncapturable("a state without a noise generator's")
        components = dict(self._components())
        codec = self._codec()
        for path, (value, _) in captured.items():
            place, _, name = path.partition(".")
            if not name:
                continue
            owner = state if place == _STATE else components.get(place)
            if owner is None:
                raise Uncapturable(f"{path}, of a component that is not here")
            vars(owner)[name] = codec.decode(value)
        self.generator.set_state(drawn.cpu())

    def _codec(self) -> StateCodec:
        return StateCodec(self.generator, self.pipeline._execution_device, self.pipeline.components)

    def _values(self, state: Any) -> Iterator[tuple[str, str, Any]]:
        for name, value in vars(state).items():
            yield _STATE, name, value
        for place, component in self._components():
            for name, value in vars(component).items():
                yield place, name, value

    def _components(self) -> Iterator[tuple[str, Any]]:
        for name, component in self.pipeline.components.items():
            if isinstance(component, SchedulerMixin | BaseGuidance):
                yield name, component


def _mark(value: Any) -> _Mark:
    """Equal for one unchanged value. A list or dictionary can change in place unseen, so its contents count."""
    if isinstance(value, torch.Tensor):
        return id(value), value._version
    if isinstance(value, list):
        return id(value), hash(tuple(_mark(item) for item in value))
    if isinstance(value, dict):
        return id(value), hash(tuple((key, _mark(item)) for key, item in value.items()))
    if is_rebuildable(type(value)):
        return id(value), hash(tuple((key, _mark(item)) for key, item in vars(value).items()))
    return id(value), 0
