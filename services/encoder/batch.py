"""Prompts of several jobs through one call of a text block, where the block allows it."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
import torch

from services.encoder.block_work import BlockResult, BlockWork
from services.encoder.cache_key import cache_key
from services.encoder.text_readings import text_readings
from services.stage.device_thread import DeviceThread, Rank
from services.stage.tensors import to_bundle

log = structlog.get_logger()


@dataclass(eq=False)
class _Waiting:
    work: BlockWork
    started: bool = False
    result: BlockResult | None = field(default=None)


class BlockBatches:
    """Runs waiting work of one kind together: whoever's turn comes first takes up to `max_batch - 1` others along.

    Work is of one kind when it differs in text alone. Nothing waits for company: an idle device runs each at once.
    """

    def __init__(self, max_batch: int) -> None:
        self.max_batch = max_batch
        self._waiting: dict[str, list[_Waiting]] = defaultdict(list)
        # Blocks whose results cannot be told apart again.
        self._unbatchable: set[tuple[str, str]] = set()

    async def run(self, rank: Rank, work: BlockWork, thread: DeviceThread) -> BlockResult:
        """What came of the work, with its share of the device time."""
        if (work.model.checkpoint.fingerprint, work.name) in self._unbatchable:
            return await thread.run(rank, lambda: work.run(thread))
        kind = _kind(work)
        mine = _Waiting(work)
        self._waiting[kind].append(mine)
        try:
            return await thread.run(rank, lambda: self._run_with_others(kind, mine, thread))
        finally:
            if mine in self._waiting[kind]:
                self._waiting[kind].remove(mine)
            if not self._waiting[kind]:
                del self._waiting[kind]

    def _run_with_others(self, kind: str, mine: _Waiting, thread: DeviceThread) -> BlockResult:
        if mine.result is not None:
            return mine.result
        mine.started = True
        # Not those that lie paused under this one, nor those that they have taken along.
        others = [other for other in self._waiting.get(kind, []) if not other.started]
        group = [mine, *others[: self.max_batch - 1]]
        for each in group:
            each.started = True
        if len(group) == 1 or not self._run_together(group, thread):
            return mine.work.run(thread)
        assert mine.result is not None
        return mine.result

    def _run_together(self, group: list[_Waiting], thread: DeviceThread) -> bool:
        """Fill in every result; False, with none filled in, if each must run alone."""
        work = group[0].work
        try:
            results = _run_batch([each.work for each in group], thread)
        except Exception as error:  # noqa: BLE001 - one bad prompt must not fail the others: each runs alone
            # Its words may quote a prompt.
            log.info("batch_failed", block=work.name, size=len(group), error=type(error).__name__)
            return False
        if results is None:
            self._unbatchable.add((work.model.checkpoint.fingerprint, work.name))
            return False
        for each, result in zip(group, results, strict=True):
            each.result = result
        return True


def _kind(work: BlockWork) -> str:
    declared = work.model.checkpoint.contracts[work.name].inputs
    shared = {name: value for name, value in work.inputs.items() if name in declared and not isinstance(value, str)}
    return cache_key(
        {
            "model": work.model.checkpoint.fingerprint,
            "block": work.name,
            "guidance": work.guidance,
            "texts": sorted(work.texts),
            "inputs": shared,
        }
    )


def _run_batch(works: list[BlockWork], thread: DeviceThread) -> list[BlockResult] | None:
    """Each work's part of one call; None if the block's outputs have no dimension of that length to cut along."""
    first = works[0]
    began = thread.clock_s()
    texts = {name: [work.texts[name] for work in works] for name in first.texts}
    outputs, seen = replace(first, inputs={**first.inputs, **texts}).outputs()
    seconds = (thread.clock_s() - began) / len(works)
    if not all(_is_cut(value, len(works)) for value, _ in outputs.values()):
        return None
    return [
        BlockResult(
            to_bundle({name: (value[index : index + 1], kind) for name, (value, kind) in outputs.items()}),
            seconds,
            readings,
        )
        for index, readings in enumerate(text_readings(seen, [work.texts for work in works]))
    ]


def _is_cut(value: Any, count: int) -> bool:
    is_batch = isinstance(value, torch.Tensor) and value.ndim > 0 and value.shape[0] == count
    return is_batch or (isinstance(value, list) and len(value) == count)
