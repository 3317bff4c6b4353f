"""The seam between the stock denoising loop and us: what happens around each step."""

from dataclasses import dataclass, field
from typing import Any, Protocol

from diffusers.modular_pipelines.modular_pipeline import LoopSequentialPipelineBlocks

from services.denoiser.loop_state import LoopState
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
    place: the same block, run again, goes on where the captured one was.
    """

    loop_state: LoopState
    observer: Observer
    resume: CapturedState | None = None
    _capturable: bool = field(default=True)

    def wrap(self, loop: LoopSequentialPipelineBlocks) -> None:
        """Wrap the loop's `loop_step`."""
        stock = loop.loop_step
        first = _step_of(self.resume) if self.resume is not None else 0

        def loop_step(components: Any, state: Any, i: int, **more: Any) -> Any:
            step_count = len(state.timesteps)
            if i == 0:
                self.loop_state.begin(state)
                if first >= step_count:
                    raise Uncapturable(f"a state after step {first}, of {step_count}")
            if i < first:
                return components, state
            self.observer.before_step()
            if i == first:
                if self.resume is not None:
                    self.loop_state.restore(self.resume, state)
                self.observer.after_step(i, step_count)
            result = stock(components, state, i=i, **more)
            self._at_boundary(i + 1, step_count, state, is_first=i == first)
            return result

        loop.loop_step = loop_step

    def _at_boundary(self, step: int, step_count: int, state: Any, *, is_first: bool) -> None:
        self.observer.after_step(step, step_count)
        if step == step_count or not self._capturable or not (is_first or self.observer.checkpoint_due()):
            return
        try:
            captured = self.loop_state.capture(step, state)
        except Uncapturable as error:
            self._capturable = False
            self.observer.restart_only(str(error))
            return
        if self.observer.checkpoint_due():
            self.observer.captured(step, captured)


def _step_of(resume: CapturedState) -> int:
    step = resume.get("step", (None, ""))[0]
    if not isinstance(step, int) or step < 1:
        raise Uncapturable("a state of no step")
    return step
