"""Runs the blocks before "denoise" for one job, each only if its result is not in the cache."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from services.encoder.batch import BlockBatches
from services.encoder.block_work import BlockResult, BlockWork
from services.encoder.cache import ConditioningCache
from services.encoder.cache_key import cache_key
from services.stage.checkpoint import Checkpoint
from services.stage.device_thread import DeviceThread, Rank
from services.stage.hosted_block import guided, guiders
from services.stage.hosted_model import HostedModel
from services.stage.job_inputs import guidance, noise
from services.stage.numerics import numerics_id
from services.stage.tensors import from_bundle
from triptych.exchange import Bundle, Exchange, StoreFull
from triptych.v1.job_pb2 import Conditioning, JobSpec

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Encoded:
    """A job's conditioning; `cached` if no block ran; `device_s` is the device time spent on it."""

    conditioning: list[Conditioning]
    cached: bool
    device_s: float


@dataclass
class _Job:
    """One job on its way through the blocks."""

    spec: JobSpec
    rank: Rank
    model: HostedModel
    inputs: dict[str, Any]
    conditioning: list[Conditioning]
    owner: str
    cached: bool = True
    device_s: float = 0.0


class Encoder:
    """Turns jobs into conditioning. One entry a block; a block that draws noise has one entry an output."""

    def __init__(
        self, exchange: Exchange, thread: DeviceThread, cache: ConditioningCache, batches: BlockBatches
    ) -> None:
        self._exchange = exchange
        self._thread = thread
        self._cache = cache
        self._batches = batches

    async def encode(self, model: HostedModel, spec: JobSpec, rank: Rank, owner: str = "") -> Encoded:
        """The job's conditioning, which only jobs of this owner find again; "" is everyone.

        Raises `TriptychError`, a `StoreFull` with what all blocks so far need together, and whatever a block raises.
        """
        job = _Job(spec, rank, model, await _apart(spec, model.inputs, spec), [], owner)
        for name in model.wanted(job.inputs):
            for output_index in range(spec.output_count) if model.checkpoint.contracts[name].draws else [None]:
                try:
                    await self._encode_block(job, name, output_index)
                except StoreFull as error:
                    made = sum(entry.data.byte_size for entry in job.conditioning)
                    raise StoreFull(error.store, made + error.byte_size) from error
        return Encoded(job.conditioning, job.cached, job.device_s)

    async def _encode_block(self, job: _Job, name: str, output_index: int | None) -> None:
        earlier = _earlier(job, name, output_index)
        key = await _apart(job.spec, cache_key, _facts(job, name, output_index, earlier))
        alone = bool(job.spec.reproducible or earlier or output_index is not None or self._batches.max_batch == 1)
        if not alone and not await self._cache.has(key):
            # What was computed beside other prompts may differ in the last bit: it has a key of its own.
            key = f"{key}-batched"
        found = await self._cache.find_or_make(key, lambda: self._compute(job, name, output_index, earlier, alone))
        job.cached &= found.cached
        job.conditioning.append(found.conditioning)

    async def _compute(
        self, job: _Job, name: str, output_index: int | None, earlier: list[Conditioning], alone: bool
    ) -> tuple[Conditioning, Bundle]:
        values: dict[str, tuple[Any, str]] = {}
        for entry in earlier:
            values.update(from_bundle(await self._exchange.get(entry.data), job.model.device))
        work = BlockWork(job.model, name, job.inputs, guidance(job.spec), values, noise(job.spec, output_index))
        if alone:
            made: BlockResult = await self._thread.run(job.rank, lambda: work.run(self._thread))
        else:
            made = await self._batches.run(job.rank, work, self._thread)
        job.device_s += made.device_s
        conditioning = Conditioning(block=name, texts=made.texts)
        if output_index is not None:
            conditioning.output_index = output_index
        return conditioning, made.bundle


async def _apart(spec: JobSpec, work: Callable[..., _Result], *arguments: Any) -> _Result:
    """What the work returns. With pictures it may take seconds: not on the event loop, whose heartbeats would stop."""
    return await asyncio.to_thread(work, *arguments) if spec.attachments else work(*arguments)


def _facts(job: _Job, name: str, output_index: int | None, earlier: list[Conditioning]) -> dict[str, Any]:
    """Everything that shapes the block's result."""
    contract = job.model.checkpoint.contracts[name]
    owner = {"owner": job.owner} if job.owner else {}
    return owner | {
        "model": job.model.checkpoint.fingerprint,
        "block": name,
        "class": contract.class_name,
        "dtype": str(job.model.dtype),
        "numerics": numerics_id(job.model.device),
        "inputs": {key: value for key, value in job.inputs.items() if key in contract.inputs},
        "guidance": _guider_facts(job.model.checkpoint, name, job.spec),
        "noise": None if output_index is None else job.spec.seed + output_index,
        "earlier": [entry.key for entry in earlier],
    }


def _earlier(job: _Job, name: str, output_index: int | None) -> list[Conditioning]:
    """Conditioning of this job that the block builds on: values that it declares, and the noise drawn so far."""
    contracts = job.model.checkpoint.contracts
    earlier = []
    for entry in job.conditioning:
        draws = entry.HasField("output_index")
        if draws and entry.output_index != output_index:
            continue
        if draws or contracts[name].inputs & contracts[entry.block].carried:
            earlier.append(entry)
    return earlier


def _guider_facts(checkpoint: Checkpoint, name: str, spec: JobSpec) -> dict[str, Any]:
    """What a guider tells an encoder block: its kind, and how many conditions it wants.

    The scale itself shapes no embedding: prompts stay cached when only it changes.
    """
    facts = {}
    for component, stock in guiders(checkpoint.pipeline).items():
        if component in checkpoint.contracts[name].components:
            guider = guided(stock, guidance(spec))
            facts[component] = [type(guider).__name__, guider.num_conditions]
    return facts
