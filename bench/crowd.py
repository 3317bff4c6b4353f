"""A crowd: 1,000 watchers and 200 submitters at once, through one router.

A few long jobs are handed in, and 1,000 watchers, in a process of their own, watch them. Then 200 submitters hand in
jobs one after the other, all at once. To be: no error but shedding; every watcher sees a whole log (no gap, no double,
one end). `submit_ms`: what SubmitJob took, until the job was durable, a refusal included. At the end every job is
cancelled or done. Exits with 1 if something is not so.

    python -m bench.crowd --json
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

from bench.program import note
from bench.trial import program
from bench.trial.customer import SHED
from bench.trial.program import option
from bench.trial.scene import suite_config
from triptych.client import Client
from triptych.errors import TriptychError
from triptych.supervisor import Suite
from triptych.v1.job_pb2 import JobSpec

WATCHERS_WITHIN_S = 300.0
PER_CLIENT = 20


@dataclass(frozen=True)
class Options:
    """`watched_jobs` of `watched_steps` steps are watched; each submitter hands in `jobs` jobs."""

    watchers: int = option(1000, "in a process of their own")
    submitters: int = option(200, "at once")
    jobs: int = option(5, "of each submitter")
    model: str = "sdxl"
    watched_jobs: int = 20
    watched_steps: int = 900


@dataclass
class Submissions:
    """What came of them."""

    seconds: list[float] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    shed: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)


async def crowd(address: str, options: Options) -> dict[str, object]:
    """Run it at a router; the figures. No job of it is left."""
    async with Client(address) as client:
        watched = [(await client.submit(_long(options, index))).job_id for index in range(options.watched_jobs)]
        async with _watchers(address, options.watchers, watched) as lines:
            await lines.readline()
            note(f"{options.watchers} watch")
            began = time.monotonic()
            made = await submit_all(address, options)
            seconds = time.monotonic() - began
            note(f"{len(made.seconds)} submissions, {len(made.accepted)} accepted in {seconds:.1f} s")
            for job_id in (*made.accepted, *watched):
                await client.cancel(job_id)
            async with asyncio.timeout(WATCHERS_WITHIN_S):
                outcomes = json.loads(await lines.readline())
    return {
        "benchmark": "crowd",
        "watchers": options.watchers,
        "submitters": options.submitters,
        "sound": outcomes == {"whole": options.watchers} and not made.errors and bool(made.accepted),
        "watched": outcomes,
        "submissions": len(made.seconds),
        "accepted": len(made.accepted),
        "shed": dict(made.shed),
        "errors": dict(made.errors),
        "submits_per_s": round(len(made.seconds) / seconds, 1),
        "submit_ms": {
            "p50": round(median(made.seconds) * 1e3, 1),
            "p99": round(quantiles(made.seconds, n=100)[-1] * 1e3, 1),
            "max": round(max(made.seconds) * 1e3, 1),
        },
    }


async def submit_all(address: str, options: Options) -> Submissions:
    """Every submitter at once; each hands in its jobs one after the other."""
    made = Submissions()

    async def share(start: int) -> None:
        async with Client(address) as client:
            await client.fleet()  # connected, before it counts
            stop = min(start + PER_CLIENT, options.submitters)
            await asyncio.gather(*(_submit(client, options, each, made) for each in range(start, stop)))

    await asyncio.gather(*map(share, range(0, options.submitters, PER_CLIENT)))
    return made


async def _submit(client: Client, options: Options, submitter: int, made: Submissions) -> None:
    for index in range(options.jobs):
        spec = JobSpec(model=options.model, prompt=f"one of a crowd, {submitter} {index}", seed=index, step_count=2)
        began = time.perf_counter()
        try:
            made.accepted.append((await client.submit(spec)).job_id)
        except TriptychError as error:
            (made.shed if error.reason in SHED else made.errors)[error.reason.name] += 1
        made.seconds.append(time.perf_counter() - began)


def _long(options: Options, seed: int) -> JobSpec:
    return JobSpec(model=options.model, prompt="watched by many", seed=seed, step_count=options.watched_steps)


@asynccontextmanager
async def _watchers(address: str, count: int, job_ids: Sequence[str]) -> AsyncIterator[asyncio.StreamReader]:
    """What the watchers' process prints; it ends with the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.trial.watchers", address, str(count), *job_ids), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None, "a pipe was asked for"
    try:
        yield process.stdout
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def run(folder: Path, options: Options) -> dict[str, object]:
    """With a suite of its own."""
    async with Suite(suite_config(folder, denoisers=1)) as suite:
        return await crowd(suite.address, options)


if __name__ == "__main__":
    program.main(__doc__, Options, run)
