"""The seam for previews: after a step, if one is due, what the sampler takes for the clean latents."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from diffusers.modular_pipelines.modular_pipeline import LoopSequentialPipelineBlocks, PipelineState

from services.stage.hosted_block import loops

# Latents from their way through the loop to what decode blocks take.
Finish = Callable[[torch.Tensor], torch.Tensor]
_LATENTS = "latents"


class PreviewTaker(Protocol):
    """Who wants previews of one output; called on the device thread."""

    def due(self, step: int, step_count: int) -> bool:
        """Whether one is wanted after so many steps; if so, `take` follows."""

    def take(self, step: int, step_count: int, clean: torch.Tensor | None, finish: Finish) -> None:
        """The clean latents as estimated after so many steps, on the device; None if the sampler does not tell.

        `finish` is for another thread: it is never in the way of a step.
        """


@dataclass
class PreviewSeam:
    """Around the steps of one job's own loop, inside of the step seam.

    `inputs` are the block's own, by name; `clean` tells what the sampler took for the clean latents in the last step.
    """

    fork: Any
    inputs: Mapping[str, Any]
    taker: PreviewTaker
    clean: Callable[[], torch.Tensor | None]

    def wrap(self, loop: LoopSequentialPipelineBlocks) -> None:
        """Wrap the loop's `loop_step`."""
        stock = loop.loop_step
        tail = list(blocks_after(self.fork._blocks, loop))

        def finish(latents: torch.Tensor) -> torch.Tensor:
            return self._run(tail, latents)

        def loop_step(components: Any, state: Any, i: int, **more: Any) -> Any:
            result = stock(components, state, i=i, **more)
            step, step_count = i + 1, len(state.timesteps)
            if step < step_count and self.taker.due(step, step_count):
                self.taker.take(step, step_count, self.clean(), finish)
            return result

        loop.loop_step = loop_step

    def _run(self, tail: list[Any], latents: torch.Tensor) -> torch.Tensor:
        """What follows the loop within its stage: unpacking, for the families that pack their latents."""
        state = PipelineState()
        for name, value in self.inputs.items():
            state.set(name, value)
        state.set(_LATENTS, latents)
        with torch.no_grad():
            for block in tail:
                if any(loops(block)):
                    raise ValueError(f"another loop follows: {type(block).__name__}")
                _, state = block(self.fork, state)
        finished: torch.Tensor = state.get(_LATENTS)
        return finished


def blocks_after(block: Any, loop: Any) -> Iterator[Any]:
    """The blocks that run after a loop inside `block`, in order; of alternatives, none but the loop's own.

    Nothing if the loop is not there.
    """
    children = list((getattr(block, "sub_blocks", None) or {}).values())
    for index, child in enumerate(children):
        if child is loop or any(found is loop for found in loops(child)):
            yield from blocks_after(child, loop) if child is not loop else ()
            if not hasattr(block, "select_block"):
                yield from children[index + 1 :]
            return
