"""Short jobs, many at once, with ranks that change, cancels and failures: nobody hangs, nothing grows or is wrong.

Every finished job is compared with the same job alone: reproducible ones bit for bit, those that may be merged to
rounding. `hung`: jobs that were not over after a minute. `growth_mb`: what the process holds more after the last job
than after a quarter of them. `wrong`, `hung` and `threads_more` are to be 0.

    python -m bench.short_jobs --json
"""

import argparse
import asyncio
import gc
import json
import random
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psutil
import torch

from bench.denoiser import BenchDenoiser, bench_denoiser
from services.denoiser.denoise_work import LATENTS
from services.stage.device_memory import allocated_on
from services.stage.tensors import from_bundle, to_bundle
from tests.tiny_checkpoints import make_tiny_checkpoints
from triptych.v1.encoder_service_pb2 import StageCall
from triptych.v1.job_pb2 import Conditioning, JobSpec

JOBS, AT_ONCE, SEEDS = 2_000, 8, 3
# A cancelled call's place is free when the denoiser has noticed.
PLACES = 2 * AT_ONCE
MODELS = ("flux", "sd3")
CPU = torch.device("cpu")
HANGS_S = 60.0
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Plan:
    """A job and its fate. `cancel_after`: so many of its events; None lets it be. `later_rank`: after its first one."""

    model: str
    seed: int
    step_count: int
    rank: float
    reproducible: bool
    fails: bool
    cancel_after: int | None
    later_rank: float | None = None

    @property
    def result(self) -> tuple[str, int, int]:
        """What its latents depend on."""
        return (self.model, self.seed, self.step_count)


@dataclass
class Tally:
    """What came of the jobs."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[Plan] = field(default_factory=list)
    largest_difference: float = 0.0
    merged_forwards: int = 0
    forwards: int = 0


def make_plans(count: int, seed: int) -> list[Plan]:
    """So many jobs, the same ones for the same seed."""
    rng = random.Random(seed)
    return [
        Plan(
            model=rng.choice(MODELS),
            seed=rng.randrange(SEEDS),
            step_count=rng.randint(2, 6),
            rank=float(rng.randint(0, 20)),
            reproducible=rng.random() < 0.4,
            fails=rng.random() < 0.05,
            cancel_after=rng.randint(0, 5) if rng.random() < 0.2 else None,
            later_rank=float(rng.randint(0, 20)) if rng.random() < 0.3 else None,
        )
        for _ in range(count)
    ]


class Runner:
    """Runs plans against one denoiser."""

    def __init__(self, bench: BenchDenoiser) -> None:
        self.tally = Tally()
        self._bench = bench
        self._alone: dict[tuple[str, int, int], torch.Tensor] = {}
        # With it a job has no finite latents, which is seen when it has run to its end.
        self._broken: dict[str, list[Conditioning]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def learn(self, plans: list[Plan]) -> None:
        """Make every job that there is once, alone; and what makes a job fail."""
        for model in MODELS:
            self._broken[model] = [await self._break(entry) for entry in self._bench.encoded[model]]
        for plan in plans:
            if plan.result not in self._alone:
                latents = await self._latents(Plan(*plan.result, 0.0, True, False, None))
                assert latents is not None
                self._alone[plan.result] = latents

    async def run(self, plans: list[Plan]) -> None:
        await asyncio.gather(*(self._run(plan) for plan in plans))

    async def _run(self, plan: Plan) -> None:
        async with self._slots:
            try:
                latents = await asyncio.wait_for(self._latents(plan), HANGS_S)
            except TimeoutError:
                self.tally.outcomes["hung"] += 1
                return
            except grpc.aio.AioRpcError as error:
                self.tally.outcomes["failed" if plan.fails else f"failed: {error.details()}"] += 1
                return
            if latents is None:
                self.tally.outcomes["cancelled"] += 1
                return
            self.tally.outcomes["finished"] += 1
            self._compare(plan, latents)

    def _compare(self, plan: Plan, latents: torch.Tensor) -> None:
        alone = self._alone[plan.result]
        difference = float((latents - alone).abs().max())
        self.tally.largest_difference = max(self.tally.largest_difference, difference)
        if plan.fails or not difference <= (0.0 if plan.reproducible else TOLERANCE * float(alone.abs().max())):
            self.tally.wrong.append(plan)

    async def _break(self, entry: Conditioning) -> Conditioning:
        exchange = self._bench.host.exchange
        values = from_bundle(await exchange.get(entry.data), CPU)
        broken = {name: (_not_a_number(value), kind) for name, (value, kind) in values.items()}
        return Conditioning(
            block=entry.block, key=entry.key, data=await exchange.put("conditioning", to_bundle(broken))
        )

    async def _latents(self, plan: Plan) -> torch.Tensor | None:
        """Its latents; None if it was cancelled. Raises what the call raises."""
        made: torch.Tensor | None = None
        events = 0
        conditioning = self._broken[plan.model] if plan.fails else None
        call = self._bench.call(plan.rank)
        stream = self._bench.denoise(self._spec(plan), plan.rank, conditioning, call)
        async for event in stream:
            if events == plan.cancel_after:
                stream.cancel()
                return None
            events += 1
            if events == 1 and plan.later_rank is not None:
                await self._rerank(call, plan.later_rank)
            if event.HasField("latents"):
                values = from_bundle(await self._bench.host.exchange.get(event.latents.data), CPU)
                await self._bench.host.exchange.delete(event.latents.data)
                made = values[LATENTS][0]
            for each in event.finished.measurements:
                self.tally.forwards += each.call_count
                self.tally.merged_forwards += each.call_count if each.merged_batch_size else 0
        return made

    async def _rerank(self, call: StageCall, rank: float) -> None:
        try:
            await self._bench.rerank(call, rank)
            self.tally.outcomes["reranked"] += 1
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.NOT_FOUND:  # it was over already
                raise

    def _spec(self, plan: Plan) -> JobSpec:
        spec = self._bench.spec(plan.model, plan.step_count, plan.seed)
        spec.width = spec.height = 64
        spec.reproducible = plan.reproducible
        return spec


async def run_short_jobs(bench: BenchDenoiser, job_count: int, seed: int) -> dict[str, object]:
    """Run so many jobs, a quarter of them for warm-up; what came of them."""
    plans = make_plans(job_count, seed)
    runner = Runner(bench)
    began = time.perf_counter()
    await runner.learn(plans)
    await runner.run(plans[: job_count // 4])
    process = psutil.Process()
    held, threads = _held_bytes(), process.num_threads()
    await runner.run(plans[job_count // 4 :])
    tally = runner.tally
    return {
        "benchmark": "short_jobs",
        "jobs": job_count,
        "seconds": round(time.perf_counter() - began, 1),
        "outcomes": dict(tally.outcomes),
        "hung": tally.outcomes["hung"],
        "wrong": len(tally.wrong),
        "largest_difference": tally.largest_difference,
        "merged_share": round(tally.merged_forwards / max(1, tally.forwards), 3),
        "left_on_device": await bench.host.thread.run((1e9, ""), lambda: bench.host.thread.started_count - 1),
        "growth_mb": round((_held_bytes() - held) / 2**20, 2),
        "threads_more": process.num_threads() - threads,
    }


def _not_a_number(value: Any) -> Any:
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return torch.full_like(value, torch.nan) if is_float else value


def _held_bytes() -> int:
    gc.collect()
    return allocated_on(CPU)()


def short_models(folder: Path) -> dict[str, Path]:
    """Write the models; their places by name."""
    make_tiny_checkpoints(folder)
    return {model: folder / model for model in MODELS}


async def run(job_count: int, seed: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="triptych-bench-") as name:
        folder = Path(name)
        async with bench_denoiser(folder, short_models(folder / "tiny"), max_active_jobs=PLACES) as bench:
            return await run_short_jobs(bench, job_count, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    result: dict[str, Any] = asyncio.run(run(options.jobs, options.seed))
    print(json.dumps(result) if options.json else "\n".join(f"{name:20} {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
