"""A loop whose step count changes while it runs: it ends where it is told to, and a checkpoint remembers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch
from diffusers.modular_pipelines.flux.denoise import FluxLoopAfterDenoiser

from services.denoiser.amendments import Amendments, StepScale
from services.stage.checkpoint import DENOISE
from services.stage.device_thread import DeviceThread
from services.stage.tensors import to_bundle
from tests.unit.denoiser.denoising_bench import DenoisingBench, Watching, bits, run, spec
from triptych.v1.job_pb2 import Amendment, FinishNow

FINISH = Amendment(finish_now=FinishNow())
SAMPLERS = [
    ("EulerDiscreteScheduler", {}),
    ("EulerAncestralDiscreteScheduler", {}),
    ("DPMSolverMultistepScheduler", {}),
    ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}),
    ("UniPCMultistepScheduler", {}),
    ("DDIMScheduler", {}),
    ("LCMScheduler", {}),
]


@pytest.fixture(scope="module")
def benches(tiny_checkpoints: Path) -> Callable[[str], DenoisingBench]:
    made: dict[str, DenoisingBench] = {}
    return lambda name: made.setdefault(name, DenoisingBench(tiny_checkpoints, name))


class Amending(Watching):
    """Amends the job before one of its steps."""

    def __init__(self, amendments: Amendments, at: int, amendment: Amendment, **more: object) -> None:
        super().__init__("", **more)  # type: ignore[arg-type]
        self.amendments, self.at, self.amendment = amendments, at, amendment
        self.counts: list[tuple[int, int]] = []

    def before_step(self) -> None:
        super().before_step()
        if self._step == self.at and (not self.counts or self.counts[-1][0] == self.at):
            self.amendments.amend(self.amendment)

    def after_step(self, step: int, step_count: int) -> None:
        super().after_step(step, step_count)
        self.counts.append((step, step_count))


def amending(at: int, amendment: Amendment, step_count: int = 8, **more: object) -> Amending:
    return Amending(Amendments(step_count), at, amendment, **more)


async def made(bench: DenoisingBench, thread: DeviceThread, watching: Amending, resume: object = None) -> list[bytes]:
    work = bench.work(spec(bench.name), watching, resume, watching.amendments)  # type: ignore[arg-type]
    return bits(await run(thread, work))


@pytest.mark.parametrize("name", ["sdxl", "flux", "sd3", "wan"])
@pytest.mark.parametrize(("at", "step_count"), [(3, 12), (3, 5), (7, 20)])
async def test_every_family_runs_as_many_steps_as_it_is_told(
    benches: Callable[[str], DenoisingBench], thread: DeviceThread, name: str, at: int, step_count: int
) -> None:
    watching = amending(at, Amendment(step_count=step_count))
    result = await made(benches(name), thread, watching)
    assert watching.counts[at] == (at, 8)
    assert watching.counts[at + 1 :] == [(step, step_count) for step in range(at + 1, step_count + 1)]
    assert result == await made(benches(name), thread, amending(at, Amendment(step_count=step_count)))


@pytest.mark.parametrize(("sampler", "options"), SAMPLERS, ids=str)
@pytest.mark.parametrize("step_count", [6, 12])
async def test_every_sampler_is_taken_up_again_with_its_new_levels(
    tiny_checkpoints: Path, thread: DeviceThread, sampler: str, options: dict[str, str], step_count: int
) -> None:
    bench = DenoisingBench(tiny_checkpoints, "sdxl")
    pipeline = bench.model.block(DENOISE).pipeline
    pipeline.scheduler = getattr(diffusers, sampler).from_config(pipeline.scheduler.config, **options)
    whole = amending(2, Amendment(step_count=step_count), every_step=True)
    want = await made(bench, thread, whole)
    # Whole timesteps and strides may leave room for one step less.
    assert step_count - 1 <= whole.counts[-1][1] <= step_count
    assert whole.reasons == []
    # The captured states are those after each step but the last.
    state = whole.states[4 - 1]
    again = Amending(Amendments(step_count), -1, FINISH)
    assert await made(bench, thread, again, to_bundle(state)) == want
    assert again.counts == whole.counts[4:]


async def test_a_job_amended_while_nobody_ran_it_is_taken_up_amended(
    benches: Callable[[str], DenoisingBench], thread: DeviceThread
) -> None:
    """As if the change had come where the checkpoint was made."""
    bench = benches("wan")
    want = await made(bench, thread, amending(3, Amendment(step_count=11)))
    before = amending(-1, FINISH, every_step=True)
    await made(bench, thread, before)
    resumed = Amending(Amendments(11), -1, FINISH)
    assert await made(bench, thread, resumed, to_bundle(before.states[2])) == want


@pytest.mark.parametrize("name", ["sdxl", "flux", "wan"])
async def test_finishing_ends_with_the_step_under_way(
    benches: Callable[[str], DenoisingBench], thread: DeviceThread, name: str
) -> None:
    watching = amending(4, Amendment(step_count=5))
    result = await made(benches(name), thread, watching)
    assert watching.counts[-2:] == [(4, 8), (5, 5)]
    assert result != await made(benches(name), thread, amending(-1, FINISH))


@pytest.mark.parametrize("name", ["sdxl", "flux", "sd3", "wan"])
@pytest.mark.parametrize("amendment", [FINISH, Amendment(step_count=2)], ids=["now", "fewer than are done"])
async def test_finishing_between_two_steps_runs_no_more(
    benches: Callable[[str], DenoisingBench], thread: DeviceThread, name: str, amendment: Amendment
) -> None:
    """As if the change had come in the midst of the step before."""
    bench = benches(name)
    watching = amending(4, amendment)
    result = await made(bench, thread, watching)
    assert watching.counts[-2:] == [(4, 8), (4, 4)]
    assert watching.amendments.step_count == (4 if amendment is FINISH else 2)
    assert result == await made(bench, thread, amending(3, Amendment(step_count=4)))


@pytest.mark.parametrize(
    "blend", [lambda latents: latents * 1.0, lambda latents: latents.mul_(1.0)], ids=["new", "same"]
)
async def test_latents_that_a_block_blends_after_their_step_need_one_more(
    benches: Callable[[str], DenoisingBench],
    thread: DeviceThread,
    monkeypatch: pytest.MonkeyPatch,
    blend: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    stock = FluxLoopAfterDenoiser.__call__

    def blending(block: Any, components: Any, state: Any, **more: Any) -> Any:
        components, state = stock(block, components, state, **more)
        state.latents = blend(state.latents)
        return components, state

    monkeypatch.setattr(FluxLoopAfterDenoiser, "__call__", blending)
    watching = amending(4, FINISH)
    await made(benches("flux"), thread, watching)
    assert watching.counts[-1] == (5, 5)
    assert watching.amendments.step_count == 5


async def test_the_result_is_the_clean_sample_that_the_sampler_predicts(
    tiny_checkpoints: Path, thread: DeviceThread
) -> None:
    """A step of Euler's to the level 0 ends in its estimate."""
    bench = DenoisingBench(tiny_checkpoints, "sd3")
    [now] = await made(bench, thread, amending(4, Amendment(step_count=5)))
    before = amending(-1, FINISH, every_step=True)
    await made(bench, thread, before)
    pipeline = bench.model.block(DENOISE).pipeline
    stock = type(pipeline.scheduler).step

    class ToTheEnd(type(pipeline.scheduler)):  # type: ignore[misc]
        def step(self, *args: object, **more: object) -> object:
            self.sigmas[self.step_index + 1] = 0.0
            return stock(self, *args, **more)

    pipeline.scheduler = ToTheEnd.from_config(pipeline.scheduler.config)
    resumed = amending(-1, FINISH, every_step=True)
    await made(bench, thread, resumed, to_bundle(before.states[3]))
    _, end = resumed.states[0]["state.latents"][0]
    ours = torch.frombuffer(bytearray(now), dtype=torch.float32)
    torch.testing.assert_close(ours, end.flatten(), atol=1e-5, rtol=1e-4)


async def test_a_job_that_did_not_begin_runs_the_stock_levels(
    benches: Callable[[str], DenoisingBench], thread: DeviceThread
) -> None:
    bench = benches("sdxl")
    stock = bits(await run(thread, bench.work(spec("sdxl", step_count=5), Watching())))
    assert await made(bench, thread, amending(0, Amendment(step_count=5))) == stock


async def test_a_sampler_that_cannot_change_starts_again(tiny_checkpoints: Path, thread: DeviceThread) -> None:
    bench = DenoisingBench(tiny_checkpoints, "sdxl")
    pipeline = bench.model.block(DENOISE).pipeline
    pipeline.scheduler = diffusers.HeunDiscreteScheduler.from_config(pipeline.scheduler.config)
    stock = bits(await run(thread, bench.work(spec("sdxl", step_count=4), Watching())))
    watching = amending(3, Amendment(step_count=4))
    assert await made(bench, thread, watching) == stock
    assert [step for step, _ in watching.counts] == [0, 1, 2, 3, *range(8)]


async def test_amended_twice(benches: Callable[[str], DenoisingBench], thread: DeviceThread) -> None:
    bench = benches("sd3")
    watching = amending(3, Amendment(step_count=14))
    watching.before = lambda: watching.amendments.amend(Amendment(step_count=9)) if watching._step == 6 else None  # type: ignore[assignment]
    await made(bench, thread, watching)
    assert watching.counts[-1] == (9, 9)
    assert watching.counts[6] == (6, 14)


def test_from_a_given_image_only_the_last_part_of_the_steps_is_run() -> None:
    assert StepScale(10, 3).loop_steps(20) == 6
    assert StepScale(10, 10).asked_steps(4) == 4
    assert StepScale(10, 3).asked_steps(2) == 7
    assert StepScale(10, 3).loop_steps(7) == 2


@pytest.mark.parametrize("name", ["sdxl", "flux", "sd3", "wan"])
async def test_finished_latents_are_refined_by_the_tail(
    benches: Callable[[str], DenoisingBench], thread: DeviceThread, name: str
) -> None:
    bench = benches(name)
    done = await run(thread, bench.work(spec(name), Watching()))
    more = spec(name, step_count=12)
    watching = amending(-1, FINISH, 12, every_step=True)
    refining = bench.work(more, watching, None, watching.amendments, refined=done, refined_step_count=8)
    refined = bits(await run(thread, refining))
    assert watching.counts == [(step, 12) for step in range(8, 13)]
    assert refined != bits(done)
    # The same job gives the same bits, taken up in its middle too.
    resume = to_bundle(watching.states[1])
    again = amending(-1, FINISH, 12)
    resumed = bench.work(more, again, resume, again.amendments, refined=done, refined_step_count=8)
    assert bits(await run(thread, resumed)) == refined
    assert again.counts == [(step, 12) for step in range(10, 13)]
    assert again.amendments.fraction(10, 12) == 0.5


async def test_a_refinement_may_be_amended_too(benches: Callable[[str], DenoisingBench], thread: DeviceThread) -> None:
    bench = benches("sd3")
    done = await run(thread, bench.work(spec("sd3"), Watching()))
    watching = amending(9, Amendment(step_count=15), 12)
    work = bench.work(
        spec("sd3", step_count=12), watching, None, watching.amendments, refined=done, refined_step_count=8
    )
    await run(thread, work)
    assert [count for _, count in watching.counts] == [12, 12, 15, 15, 15, 15, 15, 15]
