"""A job that fails, fails alone: with its own reason, and the worker serves the next one correctly."""

import asyncio
import gc
import resource
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import torch

from services.denoiser.config import DenoiserConfig
from services.denoiser.denoising import Denoising
from services.encoder.batch import BlockBatches
from services.encoder.cache import ConditioningCache
from services.encoder.encoder import Encoder
from services.stage.calls import Calls
from services.stage.checkpoint import DENOISE
from services.stage.failures import stage_failure
from services.stage.hosted_model import HostedModel
from services.stage.worker import WorkerHost
from services.stage.yield_points import add_yield_points
from tests.integration.stages.stage_calls import job
from triptych.errors import Reason, TriptychError
from triptych.exchange import Exchange, TensorData
from triptych.v1.denoiser_service_pb2 import DenoiseRequest
from triptych.v1.encoder_service_pb2 import StageCall
from triptych.v1.job_pb2 import STAGE_DENOISE, JobSpec

Hook = Callable[[torch.nn.Module, object], None]


class Stage:
    """A denoise stage of SDXL in this process, over a real exchange."""

    def __init__(self, exchange: Exchange, catalog: Path) -> None:
        torch.set_num_threads(1)
        self.config = DenoiserConfig(device="cpu", catalog=catalog, models="sdxl")
        self.host = WorkerHost(self.config, STAGE_DENOISE, exchange)
        self.host.read_catalog()
        self.host.thread.start()
        self.model = HostedModel(
            self.host.open_checkpoint("sdxl"), ["text_encoder", DENOISE], torch.float32, torch.device("cpu")
        )
        cache = ConditioningCache(exchange, 1 << 20, 60.0)
        self.encoder = Encoder(exchange, self.host.thread, cache, BlockBatches(1))
        self.text = HostedModel(self.model.checkpoint, ["text_encoder"], torch.float32, torch.device("cpu"))
        self.calls = Calls(4)

    async def latents(self, spec: JobSpec) -> bytes:
        """The job's latents. Raises what its client would see."""
        encoded = await self.encoder.encode(self.text, spec, (0.0, ""))
        call = StageCall(job_id=f"job-{spec.seed}", attempt=1, epoch=1, rank=float(spec.seed))
        request = DenoiseRequest(call=call, spec=spec, conditioning=encoded.conditioning)
        with self.calls.admit(call) as admitted:
            denoising = Denoising(self.host, self.config, self.model, request, admitted)
            try:
                events = [event async for event in denoising.events()]
            except ExceptionGroup as group:
                error = group.exceptions[0]
                raise stage_failure(error, "denoising", spec, underway=denoising.underway) from group
        [ref] = [event.latents.data for event in events if event.HasField("latents")]
        value = (await self.host.exchange.get(ref))["latents"].value
        assert isinstance(value, TensorData)
        return bytes(value.data)

    def before_forward(self, hook: Hook) -> torch.utils.hooks.RemovableHandle:
        return self.model.block(DENOISE).networks["unet"].register_forward_pre_hook(hook)


@pytest.fixture
async def stage(exchange: Exchange, tiny_checkpoints: Path) -> AsyncIterator[Stage]:
    stage = Stage(exchange, tiny_checkpoints / "models.toml")
    yield stage
    stage.host.thread.close()


async def test_short_memory_is_tried_once_more_alone(stage: Stage) -> None:
    want = await stage.latents(job("sdxl"))
    failures = [torch.OutOfMemoryError("no more")]

    def fail_once(module: torch.nn.Module, inputs: object) -> None:
        if failures:
            raise failures.pop()

    handle = stage.before_forward(fail_once)
    assert await stage.latents(job("sdxl")) == want
    handle.remove()


async def test_memory_that_stays_short_fails_that_job_with_its_reason(stage: Stage) -> None:
    want = await stage.latents(job("sdxl"))

    def fail(module: torch.nn.Module, inputs: object) -> None:
        raise torch.OutOfMemoryError("no more")

    handle = stage.before_forward(fail)
    with pytest.raises(TriptychError) as caught:
        await stage.latents(job("sdxl"))
    handle.remove()
    assert caught.value.reason is Reason.OUT_OF_MEMORY
    assert await stage.latents(job("sdxl")) == want


@pytest.mark.parametrize("failures", [1, 2])
async def test_an_allocator_that_is_at_its_limit_is_short_memory(stage: Stage, failures: int) -> None:
    want = await stage.latents(job("sdxl"))
    left = failures

    def allocate_at_the_limit(module: torch.nn.Module, inputs: object) -> None:
        nonlocal left
        if left:
            left -= 1
            with address_space_capped():
                torch.empty(4 * 2**30, dtype=torch.uint8)

    handle = stage.before_forward(allocate_at_the_limit)
    if failures == 1:
        assert await stage.latents(job("sdxl")) == want
    else:
        with pytest.raises(TriptychError) as caught:
            await stage.latents(job("sdxl"))
        assert caught.value.reason is Reason.OUT_OF_MEMORY
        assert await stage.latents(job("sdxl")) == want
    handle.remove()


@contextmanager
def address_space_capped() -> Iterator[None]:
    """This process can have a gigabyte more than it has now."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + 2**30, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


async def test_what_a_model_raises_and_latents_that_are_not_finite_fail_alone(stage: Stage) -> None:
    want = {seed: await stage.latents(job("sdxl", seed=seed)) for seed in (1, 3)}
    seen = 0

    def poison_one(module: torch.nn.Module, inputs: object) -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            raise RuntimeError("a shape that does not fit")

    handle = stage.before_forward(poison_one)
    results = await asyncio.gather(
        *(stage.latents(job("sdxl", seed=seed)) for seed in (2, 1, 3)), return_exceptions=True
    )
    handle.remove()
    failed = [result for result in results if isinstance(result, TriptychError)]
    assert [error.reason for error in failed] == [Reason.STAGE_FAILED]
    assert "a shape that does not fit" in failed[0].message
    assert {seed: await stage.latents(job("sdxl", seed=seed)) for seed in (1, 3)} == want
    with pytest.raises(TriptychError, match="not finite"):
        await stage.latents(job("sdxl", guidance=1e38))
    assert await stage.latents(job("sdxl", seed=1)) == want[1]


@pytest.mark.parametrize(("at_step", "reason"), [(1, Reason.INVALID_FIELD), (3, Reason.INTERNAL)])
async def test_a_value_error_is_the_clients_fault_until_a_step_is_done(
    stage: Stage, at_step: int, reason: Reason
) -> None:
    spec = job("sdxl", step_count=4)
    forwards = 0

    def count(module: torch.nn.Module, inputs: object) -> None:
        nonlocal forwards
        forwards += 1
        if forwards == raises_at:
            raise ValueError("sigmas do not fit")

    raises_at = 0
    handle = stage.before_forward(count)
    await stage.latents(spec)
    raises_at = 1 + forwards + forwards // 4 * (at_step - 1)
    with pytest.raises(TriptychError, match="sigmas do not fit") as caught:
        await stage.latents(spec)
    handle.remove()
    assert caught.value.reason is reason


async def test_a_cancelled_job_holds_no_memory(stage: Stage) -> None:
    """Cancelled in the middle of a forward, while it runs: its activations are gone when it has unwound."""
    seen: list[weakref.ref[torch.Tensor]] = []
    reached, go = threading.Event(), threading.Event()

    def hold(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        seen.append(weakref.ref(inputs[0]))
        if len(seen) == 3:
            reached.set()
            assert go.wait(20)

    unet = stage.model.block(DENOISE).networks["unet"]
    add_yield_points(unet, stage.host.yield_point)
    handle = unet.mid_block.register_forward_pre_hook(hold)
    running = asyncio.create_task(stage.latents(job("sdxl", step_count=50)))
    assert await asyncio.to_thread(reached.wait, 20)
    running.cancel()
    await asyncio.wait([running])
    go.set()
    # The device thread is at something else, so what was cancelled has left it.
    assert await stage.host.thread.run((99.0, ""), lambda: len(seen)) == 3
    handle.remove()
    gc.collect()
    assert [ref() for ref in seen] == [None] * 3
