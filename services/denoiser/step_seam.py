"""The seam between the stock denoising loop and us: what happens around each step."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from diffusers.modular_pipelines.modular_pipeline import LoopSequentialPipelineBlocks

from services.denoiser.loop_state import LoopState
from services.denoiser.loop_steps import LoopSteps
from services.denoiser.refinement import Refinement
from services.denoiser.state_codec import Uncapturable

CapturedState = dict[str, tuple[Any, str]]


class Observer(Protocol):
    """Who is told of a job's steps; called on the device thread."""

    def before_step(self) -> None:
        """Give way to better-ranked jobs; raises `Stopped` to end the job here, before its next step."""

    def after_step(self, step: int, step_count: int) -> None:
        """So many steps are done; 0 before the first."""

    def checkpoint_due(self) -> bool:
        """Whether the state should be captured now."""

    def captured(self, step: int, state: CapturedState) -> None:
        """The state after so many steps."""

    def restart_only(self, reason: str) -> None:
        """The state cannot be captured; told once, at the first boundary."""


@dataclass
class StepSeam:
    """Around the steps of one job's own loop.

    With `resume`, the steps before its own are skipped, no forward of theirs is run, and the state is put back in their
    place: the same block, run again, goes on where the captured one was. Where `steps` are not as many as the stock
    block has laid out, those that are left are run in the call for the first of them, and its later calls do nothing.
    With `refinement`, the loop begins in the middle, from another job's latents.
    """

    loop_state: LoopState
    observer: Observer
    steps: LoopSteps
    resume: CapturedState | None = None
    refinement: Refinement | None = None
    _capturable: bool = field(default=True)
    _began: bool = field(default=False)

    def wrap(self, loop: LoopSequentialPipelineBlocks) -> None:
        """Wrap the loop's `loop_step`."""
        stock, steps = loop.loop_step, self.steps

        def loop_step(components: Any, state: Any, i: int, **more: Any) -> Any:
            if i == 0:
                self._begin(state)
            if i == steps.done and not steps.over and not steps.amended:
                components, state = self._step(stock, components, state, more)
            while steps.amended and not steps.over:
                more["t"] = state.timesteps[steps.done]
                components, state = self._step(stock, components, state, more)
            return components, state

        loop.loop_step = loop_step

    def _begin(self, state: Any) -> None:
        self.steps.begin(self.loop_state.pipeline, state, self.refinement)
        self.loop_state.begin(state)
        if self.refinement is not None and self.resume is None:
            self.refinement.begin(self.loop_state.pipeline.scheduler, state, self.steps.done)
        if self.resume is not None:
            self.loop_state.restore(self.resume, state)
            step, laid = _count_of(self.resume, "step"), _count_of(self.resume, "laid_step_count")
            if step >= len(state.timesteps):
                raise Uncapturable(f"a state after step {step}, of {len(state.timesteps)}")
            self.steps.skip(step, laid, amended="state.timesteps" in self.resume)

    def _step(self, stock: Callable[..., Any], components: Any, state: Any, more: dict[str, Any]) -> Any:
        self.observer.before_step()
        self.steps.prepare()
        if self.steps.over:
            self.observer.after_step(self.steps.done, self.steps.count)
            return components, state
        is_first, self._began = not self._began, True
        if is_first:
            self.observer.after_step(self.steps.done, self.steps.count)
        result = stock(components, state, i=self.steps.done, **more)
        self.steps.step_done()
        self._at_boundary(state, is_first=is_first)
        return result

    def _at_boundary(self, state: Any, *, is_first: bool) -> None:
        step = self.steps.done
        self.observer.after_step(step, self.steps.count)
        if self.steps.over or not self._capturable or not (is_first or self.observer.checkpoint_due()):
            return
        try:
            captured = self.loop_state.capture(step, state)
        except Uncapturable as error:
            self._capturable = False
            self.observer.restart_only(str(error))
            return
        if self.observer.checkpoint_due():
            captured["asked_step_count"] = (self.steps.asked, "")
            captured["laid_step_count"] = (self.steps.laid, "")
            self.observer.captured(step, captured)


def asked_step_count(resume: CapturedState) -> int:
    """The step count that the stock block of a captured state was run with. Raises `Uncapturable`."""
    return _count_of(resume, "asked_step_count")


def _count_of(resume: CapturedState, name: str) -> int:
    count = resume.get(name, (None, ""))[0]
    if not isinstance(count, int) or count < 1:
        raise Uncapturable(f"a state without a {name}")
    return count
