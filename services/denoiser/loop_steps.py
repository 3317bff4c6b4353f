"""The steps of one job's loop: how many are done, how many there are to be, and what changes when that is amended."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog
import torch
from diffusers import SchedulerMixin

from services.denoiser.amendments import Amendments, StepScale
from services.denoiser.clean_estimate import CleanEstimate
from services.denoiser.noise_levels import Unspreadable, places, respread
from services.denoiser.refinement import Refinement

log = structlog.get_logger()


class StartAgain(BaseException):
    """The output has to be begun anew to run so many steps. Not an Exception: diffusers logs every one that passes."""


@dataclass
class LoopSteps:
    """Of one output. `asked` is the step count that the stock block was run with, `laid` the one its levels are for.

    More steps are wanted, or fewer that are still to come: the levels that are left are spread anew. No more than the
    step under way: its result is the clean sample that the sampler predicts, and the loop ends with it. No more than
    are done, between two steps: the last one's result becomes that, unless the block has changed it since.
    """

    amendments: Amendments
    output_index: int
    asked: int
    laid: int
    done: int = 0
    over: bool = False
    # The loop has other steps than the stock block laid out, and may have more than that will call for.
    amended: bool = False
    _estimates: list[tuple[Any, CleanEstimate]] = field(default_factory=list)
    _state: Any = None
    _ending: bool = False
    _blind: bool = False

    def begin(self, pipeline: Any, state: Any, refinement: Refinement | None) -> None:
        """Before the first step is run or skipped."""
        self._state = state
        scale = StepScale(self.asked, len(state.timesteps))
        self.done = refinement.first(scale) if refinement is not None else 0
        self.amendments.begin(self.output_index, scale, self.done)
        self._estimates = [(each, CleanEstimate(each, self._instead)) for each in _schedulers(pipeline, state)]

    def close(self) -> None:
        """After the loop: the samplers step by themselves again."""
        for _, estimate in self._estimates:
            estimate.close()
        self._estimates.clear()

    def skip(self, done: int, laid: int, *, amended: bool) -> None:
        """So many steps were run elsewhere, and the state is as they left it."""
        self.done, self.laid, self.amended = done, laid, amended
        self.amendments.reach(self.output_index, done + 1)

    @property
    def latents(self) -> Any:
        """As the loop has them."""
        return self._state.latents

    @property
    def count(self) -> int:
        """Steps of the loop in all."""
        return len(self._state.timesteps)

    def clean(self) -> torch.Tensor | None:
        """What the sampler took for the clean latents in the last step; None if it does not tell."""
        return next((clean for _, each in self._estimates if (clean := each.value()) is not None), None)

    def prepare(self) -> None:
        """Before a step: lay out the levels for the steps that are wanted by now, or be `over`. Raises `StartAgain`."""
        # Before the look at what is wanted: a change that comes between the two finds a step under way.
        self.amendments.reach(self.output_index, self.done + 1)
        wanted = self.amendments.step_count
        if wanted == self.laid:
            return
        target = self.amendments.loop_steps
        if target <= self.done and self._end_before():
            return
        if target > self.done + 1 or self._blind:
            self._lay_out(max(target, self.done + 1))
            self.laid = wanted

    def step_done(self) -> None:
        """One more step is done."""
        self.done += 1
        self.amendments.reach(self.output_index, self.done if self._untouched() is not None else self.done + 1)
        self.over = self._ending or self.done == self.count
        # A sampler of a kind that is not known: the end of its levels is the only clean sample it gives.
        self._blind = not self.over and self._wants_no_more()

    def _instead(self, estimate: CleanEstimate) -> torch.Tensor | None:
        """The clean sample, if the loop is to end with the step under way; several samplers may step in it."""
        if not self._ending and (self.done + 1 >= self.count or not self._wants_no_more(after=1)):
            return None
        clean = estimate.value()
        if clean is not None and not self._ending:
            self._ending = True
            # What the block does after its last step, it does now.
            self._state.timesteps = self._state.timesteps[: self.done + 1]
        return clean

    def _untouched(self) -> CleanEstimate | None:
        """The sampler whose last result the latents still are, if no other has stepped beside it."""
        stepped = [estimate for _, estimate in self._estimates if estimate.has_stepped]
        return stepped[0] if len(stepped) == 1 and stepped[0].resulted_in(self.latents) else None

    def _end_before(self) -> bool:
        """End with the step that was done, as if the change had come in its midst; False if that cannot be."""
        estimate = self._untouched()
        clean = estimate.value() if estimate is not None else None
        if clean is None:
            return False
        self._state.latents = clean.to(self.latents.dtype)
        self._state.timesteps = self._state.timesteps[: self.done]
        self.over = True
        return True

    def _wants_no_more(self, after: int = 0) -> bool:
        changed = self.amendments.step_count != self.laid
        return changed and self.amendments.loop_steps <= self.done + after

    def _lay_out(self, step_count: int) -> None:
        if not self.done:
            raise StartAgain
        state, old_count = self._state, self.count
        try:
            spread = [respread(each, state.timesteps, self.done, step_count) for each in self._stepping()]
        except Unspreadable as error:
            log.info("output_started_again", step=self.done, step_count=step_count, why=str(error))
            raise StartAgain from None
        if not spread:
            raise StartAgain
        state.timesteps = spread[0]
        self.amended = True
        for name, value in list(vars(state).items()):
            if isinstance(value, list) and len(value) == old_count and all(_is_numeric(item) for item in value):
                left = places(old_count - self.done, self.count - self.done)
                setattr(state, name, [*value[: self.done], *(value[self.done + place] for place in left)])
        if getattr(state, "num_inference_steps", None) == old_count:
            state.num_inference_steps = self.count
        log.info("loop_amended", step=self.done, step_count=self.count)

    def _stepping(self) -> Iterator[Any]:
        for scheduler, _ in self._estimates:
            if getattr(scheduler, "step_index", self.done) is not None:
                yield scheduler


def _schedulers(pipeline: Any, state: Any) -> list[Any]:
    """The job's own samplers: components, and copies that a block made for itself."""
    found = [*pipeline.components.values(), *vars(state).values()]
    distinct = {id(each): each for each in found if isinstance(each, SchedulerMixin)}
    return list(distinct.values())


def _is_numeric(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_numeric(item) for item in value)
    return isinstance(value, int | float)
