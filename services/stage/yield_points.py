"""Where a forward can be interrupted: before each block of a network."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from services.stage.device_thread import DeviceThread
from services.stage.run_ahead import RunAhead

# A module with fewer parts that have parameters is a detail of a block, not a block: the layers of a feed-forward, say.
_MIN_PARTS = 3


@dataclass(frozen=True)
class YieldPoint:
    """What happens there, on the device thread: the device catches up, then better-ranked work runs."""

    thread: DeviceThread
    run_ahead: RunAhead | None = None

    def __call__(self) -> None:
        if self.run_ahead is not None:
            self.run_ahead.mark()
        self.thread.give_way(in_forward=True)


def add_yield_points(network: torch.nn.Module, give_way: Callable[[], None]) -> int:
    """Call `give_way` before each block of the network, in every job's forwards; returns how many blocks there are.

    Blocks are told by structure, whatever the family: the network lists them. A VAE's are passed once a tile, or once a
    few frames. Hooks are called outside of a block that was compiled by itself, and are lost in a network that was
    compiled as a whole.
    """
    blocks = list(_blocks(network))
    for block in blocks:
        block.register_forward_pre_hook(_hook(give_way))
    return len(blocks)


def _blocks(network: torch.nn.Module) -> Iterator[torch.nn.Module]:
    for module in network.modules():
        if isinstance(module, torch.nn.ModuleList):
            yield from (child for child in module if _part_count(child) >= _MIN_PARTS)


def _part_count(module: torch.nn.Module | None) -> int:
    """Parts with parameters of their own. A list of blocks may have gaps: one without attention, say."""
    if module is None:
        return 0
    return sum(1 for part in module.modules() if next(part.parameters(recurse=False), None) is not None)


def _hook(give_way: Callable[[], None]) -> Callable[..., None]:
    def before_block(module: torch.nn.Module, inputs: Any) -> None:
        give_way()

    return before_block
