"""Jobs whose forwards are computed together: close to what they are alone; and who may not be merged is exact."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from services.denoiser.denoise_work import Denoised
from services.denoiser.forward_seam import add_forward_seam
from services.denoiser.merging import Merging
from services.stage.checkpoint import DENOISE
from services.stage.device_thread import DeviceThread
from services.stage.tensors import from_bundle
from services.stage.yield_points import add_yield_points
from tests.unit.denoiser.denoising_bench import CPU, DenoisingBench, Watching, bits, spec

STEPS = 8


class MergingBench:
    """A model on a device thread that merges, which begins with what it would have found out: that merging pays."""

    def __init__(self, checkpoints: Path, name: str) -> None:
        torch.set_num_threads(1)
        self.thread = DeviceThread("device")
        self.merging = Merging(self.thread, CPU, max_batch=4)
        self.thread.merge_with(self.merging)
        self.bench = DenoisingBench(checkpoints, name)
        self.networks = self.bench.model.block(DENOISE).networks
        self.before_block: Callable[[], None] = lambda: None
        for name, network in self.networks.items():
            add_forward_seam(network, name, self.thread, self.merging)
            add_yield_points(network, self._at_block)
        self.thread.start()

    def _at_block(self) -> None:
        self.before_block()
        self.thread.give_way()

    def run(
        self, seed: int, rank: float = 1.0, kind: str | None = "kind", watching: Watching | None = None, **options: Any
    ) -> asyncio.Task[Denoised]:
        watching = watching or Watching()
        watching.before = self.thread.give_way
        work = self.bench.work(spec(self.bench.name, seed, STEPS), watching)
        return asyncio.create_task(
            self.thread.run((rank, str(seed)), lambda: work.run(self.thread), kind=kind, **options)
        )

    def pays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is measured is not what this test is about: together always pays."""
        gains = self.merging.gains
        monkeypatch.setattr(gains, "observe", lambda *_: None)
        monkeypatch.setattr(gains, "most", lambda shape: gains._of(shape).cap)
        monkeypatch.setattr(gains, "batch", lambda shape, available: min(available, gains._of(shape).cap))


@pytest.fixture(params=["sdxl", "flux", "sd3", "wan"])
async def bench(request: pytest.FixtureRequest, tiny_checkpoints: Path) -> AsyncIterator[MergingBench]:
    bench = MergingBench(tiny_checkpoints, request.param)
    yield bench
    bench.thread.close()


@pytest.fixture
async def sd3(tiny_checkpoints: Path) -> AsyncIterator[MergingBench]:
    bench = MergingBench(tiny_checkpoints, "sd3")
    yield bench
    bench.thread.close()


def largest_difference(one: Denoised, other: Denoised) -> float:
    pairs = zip(from_bundle(one.latents, CPU).values(), from_bundle(other.latents, CPU).values(), strict=True)
    return max(float((mine - theirs).abs().max()) for (mine, _), (theirs, _) in pairs)


async def test_merged_jobs_are_close_to_what_they_are_alone_and_the_rest_is_exact(
    bench: MergingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.pays(monkeypatch)
    alone = [await bench.run(seed, kind=None) for seed in range(4)]
    # Mixed ranks; one of them does not want to be merged.
    beside = await asyncio.gather(*(bench.run(seed, float(seed), None if seed == 3 else "kind") for seed in range(4)))
    merged = beside[:3]
    assert all(largest_difference(one, other) < 1e-3 for one, other in zip(merged, alone, strict=False))
    assert bits(beside[3].latents) == bits(alone[3].latents)
    assert {batch.merged for batch in merged[0].forwards.by_batch} == {
        3 * batch.own for batch in alone[0].forwards.by_batch
    }
    assert all(list(each.forwards.by_batch) == list(alone[0].forwards.by_batch) for each in (*alone, beside[3]))
    # What was computed for three is shared out.
    assert all(each.device_s < sum(other.device_s for other in merged) for each in merged)


async def test_what_pays_is_found_out_and_jobs_by_themselves_are_computed_as_ever(sd3: MergingBench) -> None:
    alone = await sd3.run(1, kind=None)
    with_kind = await sd3.run(1)
    assert bits(with_kind.latents) == bits(alone.latents)
    jobs = await asyncio.gather(*(sd3.run(seed) for seed in range(4)))
    assert all(largest_difference(one, two) < 1e-3 for one, two in [(jobs[1], alone)])
    tried = {batch.merged for job in jobs for batch in job.forwards.by_batch}
    assert {1, 2} <= tried


async def test_a_cancelled_member_leaves_in_the_middle_of_a_forward_and_the_others_go_on(
    sd3: MergingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sd3.pays(monkeypatch)
    alone = await sd3.run(2, kind=None)
    reached, go = threading.Event(), threading.Event()
    ended: list[str] = []

    def before_block() -> None:
        if not reached.is_set() and len(sd3.thread._turns.groups) == 1:
            reached.set()
            go.wait(20)

    sd3.before_block = before_block
    best, other = sd3.run(1, 1.0), sd3.run(2, 2.0)
    best.add_done_callback(lambda _: ended.append("best"))
    await asyncio.to_thread(reached.wait, 20)
    best.cancel()
    await asyncio.wait([best])
    go.set()
    assert largest_difference(await other, alone) < 1e-3
    assert ended == ["best"]
    assert await sd3.thread.run((9.0, ""), lambda: sd3.thread.started_count) == 1


async def test_a_job_that_fails_fails_alone(sd3: MergingBench, monkeypatch: pytest.MonkeyPatch) -> None:
    sd3.pays(monkeypatch)
    alone = await sd3.run(2, kind=None)

    class Failing(Watching):
        def after_step(self, step: int, step_count: int) -> None:
            if step == 3:
                raise ValueError("no more")

    bad, good = sd3.run(1, watching=Failing()), sd3.run(2)
    with pytest.raises(ValueError, match="no more"):
        await bad
    assert largest_difference(await good, alone) < 1e-3


async def test_what_does_not_fit_together_is_computed_alone(sd3: MergingBench, monkeypatch: pytest.MonkeyPatch) -> None:
    sd3.pays(monkeypatch)
    alone = [await sd3.run(seed, kind=None) for seed in (1, 2, 3)]
    block = next(iter(sd3.networks["transformer"].children()))

    def refuse_three(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if inputs[0].shape[0] >= 3:
            raise torch.OutOfMemoryError("no more")

    block.register_forward_pre_hook(refuse_three)
    jobs = await asyncio.gather(*(sd3.run(seed) for seed in (1, 2, 3)))
    assert all(largest_difference(one, two) < 1e-3 for one, two in zip(jobs, alone, strict=True))
    assert all(max(batch.merged for batch in job.forwards.by_batch) <= 2 for job in jobs)


async def test_a_network_that_mixes_its_samples_is_found_out_and_everything_stays_exact(
    sd3: MergingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sd3.pays(monkeypatch)
    block = next(iter(sd3.networks["transformer"].children()))
    block.register_forward_pre_hook(lambda module, inputs: (inputs[0] + inputs[0].mean(0, keepdim=True),))
    alone = [await sd3.run(seed, kind=None) for seed in (1, 2)]
    jobs = await asyncio.gather(*(sd3.run(seed) for seed in (1, 2)))
    assert [bits(job.latents) for job in jobs] == [bits(job.latents) for job in alone]


async def test_a_member_is_not_told_that_it_is_paused(sd3: MergingBench, monkeypatch: pytest.MonkeyPatch) -> None:
    sd3.pays(monkeypatch)
    told: dict[int, list[bool]] = {1: [], 2: [], 3: []}
    reached, go = threading.Event(), threading.Event()

    def before_block() -> None:
        if not reached.is_set() and len(sd3.thread._turns.groups) == 1:
            reached.set()
            go.wait(20)

    sd3.before_block = before_block
    jobs = [sd3.run(seed, float(seed), on_pause=told[seed].append) for seed in (2, 3)]
    await asyncio.to_thread(reached.wait, 20)
    better = sd3.run(1, 1.0, kind="another", on_pause=told[1].append)
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(better, *jobs)
    assert told == {1: [], 2: [True, False], 3: [True, False]}
