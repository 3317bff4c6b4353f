"""What the suite adds to the stock pipeline: latency of one picture, throughput at saturation, decoding that is hidden.

One picture: a fresh prompt through router, encoder, denoiser and decoder, to the PNG in the client's hands, beside the
stock pipeline in one process, to a PNG; the same threads in both (a stage has them for itself while it works, as the
pipeline has), taken in turn. The two files are compared: their pixels must be equal.

Saturation: 40 pictures handed in at once to a suite of two denoisers, beside two stock processes that make 20 each.

    python -m bench.overhead --json
"""

import asyncio
import io
import os
import sys
import time
from itertools import count
from pathlib import Path
from statistics import median

from PIL import Image, ImageChops

from bench.program import bench_folder, options_of, tell
from bench.stock import GUIDANCE, SIDE, STEPS, StockPipeline, prompt_of
from bench.trial.models import write_router_config
from triptych.client import Client
from triptych.durations import seconds_of
from triptych.supervisor import Suite, SuiteConfig, default_catalog
from triptych.v1.job_pb2 import JobEvent, JobSpec, Stage

PAIRS, WARM_UP = 20, 3
PICTURES, ROUNDS = 40, 3
Interval = tuple[float, float]


def spec_of(seed: int) -> JobSpec:
    return JobSpec(
        model="shapes",
        prompt=prompt_of(seed),
        seed=seed,
        step_count=STEPS,
        guidance=GUIDANCE,
        width=SIDE,
        height=SIDE,
    )


async def one_picture(folder: Path, threads: int, seeds: "count[int]") -> dict[str, object]:
    """Latency, in pairs."""
    stock = StockPipeline(threads)
    suite_ms, stock_ms = [], []
    async with _suite(folder, threads, 1) as suite, Client(suite.address) as client:
        for index in range(WARM_UP + PAIRS):
            seed = next(seeds)
            began = time.perf_counter()
            [made] = await client.generate(spec_of(seed))
            between = time.perf_counter()
            want = stock.png(seed)
            ended = time.perf_counter()
            _check_equal(made.data, want)
            if index >= WARM_UP:
                suite_ms.append((between - began) * 1e3)
                stock_ms.append((ended - between) * 1e3)
    return {
        "pairs": PAIRS,
        "suite_ms": round(median(suite_ms), 1),
        "stock_ms": round(median(stock_ms), 1),
        "extra_ms": round(median(one - other for one, other in zip(suite_ms, stock_ms, strict=True)), 1),
        "ratio": round(median(one / other for one, other in zip(suite_ms, stock_ms, strict=True)), 3),
    }


async def saturation(folder: Path, threads: int, seeds: "count[int]") -> dict[str, object]:
    """Throughput, in rounds of both arms."""
    suite_s, stock_s, hidden = [], [], []
    stocks = [await _start_stock(threads) for _ in range(2)]
    async with _suite(folder, threads, 2) as suite, Client(suite.address) as client:
        await asyncio.gather(*(client.generate(spec_of(next(seeds))) for _ in range(4)))
        for _ in range(ROUNDS):
            began = time.perf_counter()
            logs = await asyncio.gather(*(_log(client, spec_of(next(seeds))) for _ in range(PICTURES)))
            suite_s.append(time.perf_counter() - began)
            hidden.append(hidden_share(logs))
            began = time.perf_counter()
            await asyncio.gather(*(_ask(stock, f"{next(seeds) * 1000} {PICTURES // 2}") for stock in stocks))
            stock_s.append(time.perf_counter() - began)
    for stock in stocks:
        stock.terminate()
        await stock.wait()
    return {
        "pictures": PICTURES,
        "suite_per_s": round(PICTURES / median(suite_s), 3),
        "stock_per_s": round(PICTURES / median(stock_s), 3),
        "throughput_ratio": round(median(stock_s) / median(suite_s), 3),
        "decode_hidden_share": round(median(hidden), 3),
    }


def hidden_share(logs: list[list[JobEvent]]) -> float:
    """The part of the decoding time during which some other job was denoising, by the routers' own clock."""
    decodes = [(job, interval) for job, log in enumerate(logs) for interval in _intervals(log, "output")]
    denoises = [(job, interval) for job, log in enumerate(logs) for interval in _intervals(log, "progress")]
    total = sum(end - start for _, (start, end) in decodes)
    hidden = sum(_covered(interval, [other for owner, other in denoises if owner != job]) for job, interval in decodes)
    return hidden / total if total else 0.0


def _intervals(log: list[JobEvent], end: str) -> list[Interval]:
    """From the stage's start to its last event of the kind `end`."""
    stage = Stage.STAGE_DECODE if end == "output" else Stage.STAGE_DENOISE
    starts = [event.time for event in log if event.stage_started.stage == stage]
    ends = [event.time for event in log if event.WhichOneof("event") == end]
    if not starts or not ends:
        return []
    return [(seconds_of(starts[0]), seconds_of(ends[-1]))]


def _covered(interval: Interval, others: list[Interval]) -> float:
    """Seconds of the interval that the others cover together."""
    covered, place = 0.0, interval[0]
    for start, end in sorted(others):
        start, end = max(start, place), min(end, interval[1])
        if end > start:
            covered += end - start
            place = end
    return covered


async def _log(client: Client, spec: JobSpec) -> list[JobEvent]:
    return [item async for item in client.stream(spec) if isinstance(item, JobEvent)]


def _suite(folder: Path, threads: int, denoisers: int) -> Suite:
    catalog = default_catalog()
    assert catalog is not None, "run it in the repository"
    return Suite(
        SuiteConfig(
            state_dir=folder / f"suite-{denoisers}",
            catalog=catalog,
            router_config=write_router_config(folder),
            denoisers=denoisers,
            threads=threads,
            stage_threads=threads,
            device="cpu",
            log_level="warning",
        )
    )


async def _start_stock(threads: int) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.stock", str(threads)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    line = await process.stdout.readline()
    assert line == b"ready\n", line
    return process


async def _ask(process: asyncio.subprocess.Process, line: str) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n".encode())
    await process.stdin.drain()
    return float(await process.stdout.readline())


def _check_equal(made: bytes, want: bytes) -> None:
    one, other = (Image.open(io.BytesIO(data)).convert("RGB") for data in (made, want))
    if one.size != other.size or ImageChops.difference(one, other).getbbox() is not None:
        raise SystemExit("the suite's picture is not the stock pipeline's: what it took proves nothing")


async def run(threads: int) -> dict[str, object]:
    seeds = count(1)
    with bench_folder() as folder:
        latency = await one_picture(folder, threads, seeds)
        throughput = await saturation(folder, threads, seeds)
    return {"benchmark": "overhead", "cores": os.cpu_count(), "threads": threads, **latency, **throughput}


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--threads", type=int, default=1, help="torch threads of each stage, and of the stock pipeline")
    options = parser.parse_args()
    tell(asyncio.run(run(options.threads)), options.json)


if __name__ == "__main__":
    main()
