"""Checkpoints of a denoising loop: whatever the sampler and the guider keep, a job taken up again is the same job."""

import asyncio
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import diffusers
import numpy as np
import pytest
import torch
from diffusers.guiders import AdaptiveProjectedGuidance

from services.denoiser.state_codec import StateCodec, Uncapturable
from services.stage.checkpoint import DENOISE
from services.stage.device_thread import DeviceThread
from services.stage.tensors import to_bundle
from tests.unit.denoiser.denoising_bench import CPU, DenoisingBench, Watching, bits, run, spec
from triptych.exchange.parcel import pack, unpack

STOP_AT = 5
GENERATOR = torch.Generator()
CODEC = StateCodec(GENERATOR, CPU)
COUNTS = {"asked_step_count": (8, ""), "laid_step_count": (8, "")}
SAMPLERS = [
    ("EulerDiscreteScheduler", {}),
    ("EulerAncestralDiscreteScheduler", {}),
    ("DPMSolverMultistepScheduler", {}),
    ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}),
    ("UniPCMultistepScheduler", {}),
    ("DDIMScheduler", {}),
    ("LCMScheduler", {}),
    ("HeunDiscreteScheduler", {}),
    ("KDPM2AncestralDiscreteScheduler", {}),
]


async def assert_resumes(bench: DenoisingBench, thread: DeviceThread) -> None:
    """Run a job whole; run it, stop it in the middle, take it up again: the same bits, and no step twice."""
    job = spec(bench.name)
    whole = Watching("whole", every_step=True)
    want = bits(await run(thread, bench.work(job, whole)))
    assert whole.reasons == []
    stopped = Watching("stopped", stop_at=STOP_AT)
    task = run(thread, bench.work(job, stopped))
    with pytest.raises(BaseException):  # noqa: B017, PT011 - the awaiting task is cancelled
        await task
    [state] = stopped.states
    again = Watching("again")
    resumed = bits(await run(thread, bench.work(job, again, resume=to_bundle(state))))
    assert resumed == want
    steps = [int(line.rsplit(" ", 1)[1]) for line in again.log]
    assert steps[0] == STOP_AT
    assert steps[-1] == int(whole.log[-1].rsplit(" ", 1)[1])


@pytest.mark.parametrize("name", ["sdxl", "flux", "sd3", "wan", "wan22"])
async def test_every_family(tiny_checkpoints: Path, thread: DeviceThread, name: str) -> None:
    await assert_resumes(DenoisingBench(tiny_checkpoints, name), thread)


@pytest.mark.parametrize(("sampler", "options"), SAMPLERS, ids=[f"{name}{options or ''}" for name, options in SAMPLERS])
async def test_every_sampler(
    tiny_checkpoints: Path, thread: DeviceThread, sampler: str, options: dict[str, str]
) -> None:
    bench = DenoisingBench(tiny_checkpoints, "sdxl")
    pipeline = bench.model.block(DENOISE).pipeline
    pipeline.scheduler = getattr(diffusers, sampler).from_config(pipeline.scheduler.config, **options)
    await assert_resumes(bench, thread)


async def test_a_guider_with_momentum(tiny_checkpoints: Path, thread: DeviceThread) -> None:
    await assert_resumes(bench_with_momentum(tiny_checkpoints), thread)


async def test_a_guider_with_momentum_goes_on_in_another_process(tiny_checkpoints: Path, thread: DeviceThread) -> None:
    bench = bench_with_momentum(tiny_checkpoints)
    want = bits(await run(thread, bench.work(spec("sdxl"), Watching())))
    stopped = Watching(stop_at=STOP_AT)
    with pytest.raises(BaseException):  # noqa: B017, PT011 - the awaiting task is cancelled
        await run(thread, bench.work(spec("sdxl"), stopped))
    [state] = stopped.states
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        made = other.submit(resume_with_momentum, tiny_checkpoints, pack(to_bundle(state)))
        assert await asyncio.wrap_future(made) == want


def bench_with_momentum(checkpoints: Path) -> DenoisingBench:
    bench = DenoisingBench(checkpoints, "sdxl")
    bench.model.block(DENOISE).pipeline.guider = AdaptiveProjectedGuidance(adaptive_projected_guidance_momentum=-0.5)
    return bench


def resume_with_momentum(checkpoints: Path, state: bytes) -> list[bytes]:
    """In a process of its own: the latents of a job that goes on from a state; a step before it would be an error."""
    torch.set_num_threads(1)
    thread = DeviceThread("device")
    thread.start()
    again = Watching("again")
    try:
        resume = unpack(state)
        made = asyncio.run(run(thread, bench_with_momentum(checkpoints).work(spec("sdxl"), again, resume=resume)))
    finally:
        thread.close()
    assert again.log[0] == f"again step {STOP_AT}"
    return bits(made)


async def test_what_cannot_be_captured_is_told_at_the_first_boundary(
    tiny_checkpoints: Path, thread: DeviceThread
) -> None:
    bench = DenoisingBench(tiny_checkpoints, "sdxl")
    scheduler = bench.model.block(DENOISE).pipeline.scheduler
    stock = type(scheduler).step

    class Odd(type(scheduler)):  # type: ignore[misc]
        def step(self, *args: object, **more: object) -> object:
            self.memory = open  # not a value
            return stock(self, *args, **more)

    bench.model.block(DENOISE).pipeline.scheduler = Odd.from_config(scheduler.config)
    watching = Watching(every_step=True)
    await run(thread, bench.work(spec("sdxl"), watching))
    [reason] = watching.reasons
    assert reason.startswith("scheduler.memory is a ")
    assert watching.states == []


async def test_a_checkpoint_that_cannot_be_used_is_left_aside(tiny_checkpoints: Path, thread: DeviceThread) -> None:
    bench = DenoisingBench(tiny_checkpoints, "sdxl")
    want = bits(await run(thread, bench.work(spec("sdxl"), Watching())))
    strange = {**COUNTS, "step": (3, ""), "generator": (torch.Generator().get_state(), ""), "nobody.x": (1, "")}
    made = bits(await run(thread, bench.work(spec("sdxl"), Watching(), resume=to_bundle(strange))))
    assert made == want


def test_the_codec_keeps_types() -> None:
    values = [
        None,
        True,
        3,
        2.5,
        "x",
        b"y",
        [1, [2]],
        (1, (2,)),
        {"a": (1,), 2: None},
        np.float32(1.5),
        torch.float16,
        GENERATOR,
    ]
    back = CODEC.decode(CODEC.encode(values))
    assert back == values
    assert [type(each) for each in back] == [type(each) for each in values]
    array = CODEC.decode(CODEC.encode(np.arange(3, dtype=np.int16)))
    assert array.dtype == np.int16
    assert array.tolist() == [0, 1, 2]


@pytest.mark.parametrize("value", [open, object(), Path("x"), {1, 2}, lambda: 0, torch.Generator()])
def test_the_codec_refuses_what_it_does_not_know(value: object) -> None:
    with pytest.raises(Uncapturable):
        CODEC.encode([value])


def test_no_class_outside_of_diffusers_is_ever_rebuilt() -> None:
    for module, name in (
        ("subprocess", "Popen"),
        ("tests.unit.denoiser.denoising_bench", "Watching"),
        ("diffusers.guiders.x", "Y"),
    ):
        with pytest.raises(Uncapturable):
            CODEC.decode(("object", module, name, ("dict", [])))


@pytest.mark.parametrize(
    "strange",
    [
        {**COUNTS, "generator": (torch.Generator().get_state(), "")},
        {**COUNTS, "step": ("x", ""), "generator": (torch.Generator().get_state(), "")},
        {**COUNTS, "step": (99, ""), "generator": (torch.Generator().get_state(), "")},
        {**COUNTS, "step": (3, "")},
        {"step": (3, ""), "generator": (torch.Generator().get_state(), "")},
    ],
    ids=["no step", "a step that is none", "a step beyond the last", "no generator", "no count of steps"],
)
async def test_a_state_that_makes_no_sense_is_left_aside(
    tiny_checkpoints: Path, thread: DeviceThread, strange: dict[str, tuple[object, str]]
) -> None:
    bench = DenoisingBench(tiny_checkpoints, "sdxl")
    want = bits(await run(thread, bench.work(spec("sdxl"), Watching())))
    made = bits(await run(thread, bench.work(spec("sdxl"), Watching(), resume=to_bundle(strange))))
    assert made == want


def test_a_component_travels_as_its_name() -> None:
    """Wan 2.2 keeps the transformer that is in use, of its two, with the loop's values."""
    mine, others = ({"transformer": torch.nn.Linear(1, 1), "transformer_2": torch.nn.Linear(1, 1)} for _ in range(2))
    sent = StateCodec(GENERATOR, CPU, mine).encode([mine["transformer_2"]])
    assert StateCodec(GENERATOR, CPU, others).decode(sent) == [others["transformer_2"]]
    with pytest.raises(Uncapturable):
        CODEC.decode(sent)
