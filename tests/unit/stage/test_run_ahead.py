"""The CPU is so many blocks ahead of the device at most."""

import asyncio
import threading
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from services.stage.device_thread import DeviceThread
from services.stage.run_ahead import RunAhead, run_ahead_on
from services.stage.yield_points import YieldPoint, add_yield_points


@dataclass
class Device:
    """A queue that runs only when somebody waits for it; blocks and events lie in it in their order."""

    queue: list[object] = field(default_factory=list)
    most_blocks: int = 0

    def event(self) -> "Event":
        return Event(self)

    def add_block(self) -> None:
        self.queue.append("block")
        self.most_blocks = max(self.most_blocks, self.queue.count("block"))


@dataclass(eq=False)
class Event:
    device: Device

    def record(self) -> None:
        self.device.queue.append(self)

    def synchronize(self) -> None:
        if self in self.device.queue:
            del self.device.queue[: self.device.queue.index(self) + 1]


@given(blocks=st.integers(1, 5), count=st.integers(0, 30))
def test_never_more_than_so_many_blocks_are_queued(blocks: int, count: int) -> None:
    device = Device()
    run_ahead = RunAhead(blocks, device.event)
    for _ in range(count):
        run_ahead.mark()
        assert device.queue.count("block") <= blocks
        device.add_block()
    # It may run ahead by all of them, and one is being queued.
    assert device.most_blocks == min(count, blocks + 1)


def test_events_are_used_again() -> None:
    device, made = Device(), list[Event]()

    def make() -> Event:
        made.append(device.event())
        return made[-1]

    run_ahead = RunAhead(2, make)
    for _ in range(20):
        run_ahead.mark()
        device.add_block()
    assert len(made) == 3


def test_nothing_is_bounded_on_a_cpu() -> None:
    assert run_ahead_on(torch.device("cpu"), 2) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
async def test_on_a_gpu_a_switch_waits_for_the_blocks_in_flight_alone() -> None:
    """Of a network of forty large blocks, at most two lie queued when better-ranked work gets its turn."""
    device = torch.device("cuda")
    thread = DeviceThread("device")
    point = YieldPoint(thread, run_ahead_on(device, 2))
    ended: list[torch.cuda.Event] = []
    reached, go = threading.Event(), threading.Event()

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList(torch.nn.Linear(4096, 4096, device=device) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for part in self.parts:
                x = part(x)
            event = torch.cuda.Event()
            event.record()
            ended.append(event)
            return x

    network = torch.nn.ModuleList(Block() for _ in range(40))

    def before_block() -> None:
        if len(ended) == 20:
            reached.set()
            assert go.wait(20)
        point()

    def long() -> None:
        x = torch.ones(8192, 4096, device=device)
        for block in network:
            x = block(x)
        torch.cuda.synchronize()

    def unfinished() -> int:
        return sum(1 for event in ended if not event.query())

    assert add_yield_points(torch.nn.ModuleList([network]), before_block) == 40
    thread.start()
    try:
        running = asyncio.create_task(thread.run((9.0, "long"), long))
        await asyncio.to_thread(reached.wait, 20)
        better = asyncio.create_task(thread.run((1.0, "short"), unfinished))
        await asyncio.sleep(0)
        go.set()
        _, in_flight = await asyncio.gather(running, better)
    finally:
        thread.close()
    assert in_flight <= 2
