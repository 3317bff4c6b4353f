"""Nothing grows: memory, threads and descriptors of every process, and what lies in JetStream, under steady work.

Customers do all that they do in bench.chaos, and nothing is struck. What is stored expires within minutes, and caches
are small, so that after the warm-up all hold as much as before. Each figure's slope (Theil and Sen) over the rest of
the time is compared with what is tolerated: per hour 24 MB of memory, 1 thread, 4 descriptors; of a stream once its
usual bytes and messages, 0 consumers. A short run tells little: a slope of ten minutes is read as one of an hour. Exits
with 1 if something grows, or a job went wrong.

    python -m bench.soak --json --minutes 30 [--keep FOLDER]

With `--keep` each sample is in the folder's vitals.jsonl.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.trial import program
from bench.trial.program import TrialOptions, option
from bench.trial.scene import suite_config
from bench.trial.trend import Tolerance, Trend, trend
from bench.trial.trial import Trial
from bench.trial.vitals import Vitals, process_vitals, stream_vitals
from triptych.exchange import Exchange
from triptych.supervisor import Suite

TOLERANCES = {
    "rss_mb": Tolerance(24.0),
    "threads": Tolerance(1.0),
    "descriptors": Tolerance(4.0),
    "mb": Tolerance(1.0, share=1.0),
    "messages": Tolerance(50.0, share=1.0),
    "consumers": Tolerance(0.0),
}
# So that all that is stored has come and gone several times; logs outlive the longest job.
TTLS = {"conditioning": 90, "conditioning_index": 60, "latents": 60, "outputs": 60, "events": 240, "jobs": 240}
EXCHANGE = [word for name, ttl_s in TTLS.items() for word in (f"--exchange.{name}_ttl_s", str(ttl_s))]
FLAGS = dict.fromkeys(("encoder", "denoiser", "decoder"), EXCHANGE)
FLAGS["router"] = [*EXCHANGE, "--ended_jobs_s", "60"]
# So is what the encoder keeps in memory: full before the warm-up is over.
FLAGS["encoder"] = [*EXCHANGE, "--cache_bytes", str(4 << 20)]


@dataclass(frozen=True)
class Options(TrialOptions):
    minutes: float = option(30.0, "of work")
    warm_up: float = option(0.35, "share of the time that does not count")
    every_s: float = option(5.0, "between two samples")
    long_steps: int = option(60, "of each output of a long job")
    # The same work on a busy machine as on a quiet one.
    pace_s: float = option(2.0, "from a customer's short order to its next, at least")
    long_pace_s: float = option(45.0, "from a customer's long order to its next, at least")
    settle_s: float = option(120.0, "bound of the wait at the end")


async def soak(folder: Path, options: Options) -> dict[str, object]:
    """Run it; the figures."""
    samples: list[tuple[float, Vitals]] = []
    async with Suite(suite_config(folder, denoisers=1, more=FLAGS)) as suite:
        trial = Trial(suite.address, suite.exchange, options, forgets=True)
        await trial.prepare()
        look_inside = replace(suite.exchange, manage_streams=False)
        async with trial.open(), Exchange(look_inside) as exchange:
            began = time.monotonic()
            while time.monotonic() - began < options.minutes * 60:
                vitals = process_vitals({name: service.pid for name, service in suite.processes.items()})
                samples.append((time.monotonic() - began, vitals | await stream_vitals(exchange)))
                write_sample(folder / "vitals.jsonl", samples[-1])
                await asyncio.sleep(options.every_s)
    warm = [sample for sample in samples if sample[0] >= options.warm_up * options.minutes * 60]
    trends = trends_of(warm)
    growing = [name for name, each in trends.items() if not each.flat]
    return {
        "benchmark": "soak",
        "minutes": options.minutes,
        "samples": len(warm),
        "sound": trial.accounts.sound and not growing,
        "growing": growing,
        "trends": {
            name: {
                "level": round(each.level, 2),
                "per_hour": round(each.per_hour, 2),
                "tolerated": round(each.tolerance, 2),
            }
            for name, each in trends.items()
        },
        **trial.accounts.summary(),
    }


def write_sample(path: Path, sample: tuple[float, Vitals]) -> None:
    """Append a line: the seconds since the beginning, and each figure by its name."""
    figures = {f"{owner} {figure}": value for owner, vitals in sample[1].items() for figure, value in vitals.items()}
    with path.open("a") as file:
        file.write(json.dumps({"at_s": round(sample[0], 1), **figures}) + "\n")


def trends_of(samples: Sequence[tuple[float, Vitals]]) -> dict[str, Trend]:
    """By the name of the process or stream and of the figure: "router rss_mb", …"""
    series: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for at_s, vitals in samples:
        for owner, figures in vitals.items():
            for figure, value in figures.items():
                series[owner, figure].append((at_s, value))
    return {
        f"{owner} {figure}": trend(points, TOLERANCES[figure])
        for (owner, figure), points in series.items()
        if len(points) > 1
    }


if __name__ == "__main__":
    program.main(__doc__, Options, soak)
