"""The stock pipeline of the embedded model, as anyone would use it: the measure of what the suite adds.

As a program it is one stock process for `bench.overhead`: it says "ready", then makes pictures as it is told, a line
`SEED COUNT` at a time, and answers each with the seconds that they took.
"""

import io
import sys
import time
from pathlib import Path
from typing import Any

import torch
from diffusers import ModularPipeline
from diffusers.guiders import ClassifierFreeGuidance

CHECKPOINT = Path(__file__).parents[1] / "models" / "shapes" / "checkpoint"
SIDE, STEPS, GUIDANCE = 96, 20, 2.5


def prompt_of(seed: int) -> str:
    """A prompt of its own for each seed."""
    colours = ("red", "green", "blue", "yellow", "purple", "orange", "cyan", "grey")
    shapes = ("circle", "square", "triangle", "star", "cross")
    first, second = colours[seed % 8], colours[(seed // 8) % 8]
    return f"a {first} {shapes[seed % 5]} left of a {second} {shapes[(seed // 5) % 5]}, number {seed}"


class StockPipeline:
    """The whole pipeline in this process, on `threads` threads."""

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        self._pipeline: Any = ModularPipeline.from_pretrained(str(CHECKPOINT))
        self._pipeline.load_components(dtype=torch.float32)
        self._pipeline.update_components(guider=ClassifierFreeGuidance(guidance_scale=GUIDANCE))
        for loop in _loops(self._pipeline._blocks):
            loop.set_progress_bar_config(disable=True)

    def png(self, seed: int) -> bytes:
        """The picture of this seed's prompt, as a PNG file."""
        picture = self._pipeline(
            prompt=prompt_of(seed),
            generator=torch.Generator().manual_seed(seed),
            num_inference_steps=STEPS,
            height=SIDE,
            width=SIDE,
            output="images",
        )[0]
        file = io.BytesIO()
        picture.save(file, "PNG", compress_level=4)
        return file.getvalue()


def _loops(block: Any) -> list[Any]:
    if hasattr(block, "set_progress_bar_config"):
        return [block]
    return [loop for sub in (getattr(block, "sub_blocks", None) or {}).values() for loop in _loops(sub)]


def main() -> None:
    pipeline = StockPipeline(threads=int(sys.argv[1]))
    pipeline.png(0)
    print("ready", flush=True)
    for line in sys.stdin:
        seed, count = map(int, line.split())
        began = time.perf_counter()
        for index in range(count):
            pipeline.png(seed + index)
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
