"""What a job holds goes when it is over, however it ends; in a cycle it would stay for as long as it suits Python."""

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from services.denoiser.amendments import Amendments
from services.stage.device_thread import DeviceThread, Stopped
from tests.cycles import left_in_cycles
from tests.unit.denoiser.denoising_bench import DenoisingBench, Watching, run, spec
from triptych.v1.job_pb2 import Amendment, FinishNow


class Unruly(Watching):
    """Ends its job in one of several ways, before its third step."""

    def __init__(self, amendments: Amendments, way: str) -> None:
        super().__init__(every_step=way == "checkpoints")
        self.amendments, self.way = amendments, way

    def before_step(self) -> None:
        if self._step == 2:
            match self.way:
                case "stopped":
                    raise Stopped
                case "fails":
                    raise ValueError("it broke")
                case "finishes now":
                    self.amendments.amend(Amendment(finish_now=FinishNow()))
                case "more steps":
                    self.amendments.amend(Amendment(step_count=7))


class Taker:
    """Wants a preview of every step."""

    def __init__(self) -> None:
        self.count = 0

    def due(self, step: int, step_count: int) -> bool:
        return True

    def take(self, step: int, step_count: int, clean: Any, finish: Any) -> None:
        self.count += finish(clean) is not None


@pytest.mark.parametrize("name", ["sdxl", "flux", "wan"])
@pytest.mark.parametrize("way", ["ends", "stopped", "fails", "finishes now", "more steps", "checkpoints"])
async def test_no_tensor_of_a_job_waits_for_the_collector(
    tiny_checkpoints: Path, thread: DeviceThread, name: str, way: str
) -> None:
    bench, taker = DenoisingBench(tiny_checkpoints, name), Taker()

    async def job() -> None:
        amendments = Amendments(5)
        work = bench.work(spec(name, step_count=5), Unruly(amendments, way), None, amendments, previews=taker)
        ended = {"fails": ValueError, "stopped": asyncio.CancelledError}.get(way)
        with pytest.raises(ended) if ended else nullcontext():
            await run(thread, work)

    await job()  # what is made once
    taker.count = 0
    with left_in_cycles() as left:
        await job()
    assert taker.count > 0
    tensors = [each for each in left if isinstance(each, torch.Tensor)]
    assert not tensors, {type(each).__qualname__ for each in left}
