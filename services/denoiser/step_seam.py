"""The seam between the stock denoising loop and us: what happens around each step."""

from collections.abc import Callable, Iterable
from typing import Any

from diffusers.modular_pipelines.modular_pipeline import LoopSequentialPipelineBlocks

# Called after each step: steps done and steps in all.
OnStep = Callable[[int, int], None]


def add_step_seam(
    loops: Iterable[LoopSequentialPipelineBlocks], before_step: Callable[[], None], on_step: OnStep
) -> None:
    """Wrap `loop_step` of one job's own loops.

    In `before_step` the job gives way to better-ranked ones, and ends if it was stopped: stopping is free, since the
    next step is simply not run. Before the first, `on_step` is called with no steps done.
    """
    for loop in loops:
        loop.loop_step = _with_seam(loop.loop_step, before_step, on_step)


def _with_seam(stock: Callable[..., Any], before_step: Callable[[], None], on_step: OnStep) -> Callable[..., Any]:
    def loop_step(components: Any, state: Any, i: int, **more: Any) -> Any:
        step_count = len(state.timesteps)
        before_step()
        if i == 0:
            on_step(0, step_count)
        result = stock(components, state, i=i, **more)
        on_step(i + 1, step_count)
        return result

    return loop_step
