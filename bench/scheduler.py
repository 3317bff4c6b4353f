"""The scheduler alone: how long an event takes with a deep queue and a large fleet, and how fast it simulates.

Depth: jobs of many tenants, models and lengths are handed in until 20,000 wait for 256 workers; then the fleet works
on them, and every job that ends is followed by a new one. Workers report progress; some jobs are cancelled; workers
leave and come back. Each call of `handle` is timed. Bytes a job are the scheduler's and those of the request itself, by
tracemalloc, in a run of its own with a fifth of the jobs.

Simulation: a queue M/G/k (Poisson arrivals, lognormal service, k servers, first come first served, nobody turned away)
through the same `handle`, beside the same arrivals and services in SimPy. Their waits must be equal.

    python -m bench.scheduler --json
"""

import argparse
import gc
import os
import time
import tracemalloc
from random import Random

from bench.played_fleet import MOST_S, POOLS, Fleet, a_job, crew
from bench.program import options_of, tell
from bench.server_queue import simulation
from services.router.core.config import SchedulerConfig
from services.router.core.events import JobCancelRequested, JobSubmitted, WorkerSeen
from services.router.core.scheduler import Scheduler


def filled(job_count: int, worker_count: int, random: Random) -> Fleet:
    """A fleet with so many jobs handed in, none of which has gone further than its encode."""
    config = SchedulerConfig(pools=POOLS, max_queued_jobs=MOST_S)
    fleet = Fleet(Scheduler(config))
    for info in crew(worker_count):
        fleet.send(WorkerSeen(info))
    for number in range(job_count):
        fleet.now += 1e-6
        fleet.send(JobSubmitted(a_job(number, random)))
    return fleet


def depth(job_count: int, worker_count: int, event_count: int) -> dict[str, object]:
    """Times of `handle` in the deep queue."""
    random = Random(1)
    began_s = time.perf_counter()
    fleet = filled(job_count, worker_count, random)
    fill_s = time.perf_counter() - began_s
    submit_us = sorted(fleet.taken_ns[-1000:])[500] / 1000
    infos = list(crew(worker_count))
    number = job_count
    gc.collect()
    for timed in (False, True):
        fleet.taken_ns.clear()
        began_s = time.perf_counter()
        while len(fleet.taken_ns) < (event_count if timed else event_count // 4):
            over = fleet.over
            fleet.step()
            for _ in range(fleet.over - over):
                fleet.send(JobSubmitted(a_job(number, random)))
                number += 1
            if random.random() < 0.01:
                job_id = f"job-{random.randrange(number):09}"
                fleet.send(JobCancelRequested(job_id))
            if random.random() < 0.001:
                info = random.choice(infos)
                fleet.lose(info.worker_id)
                fleet.send(WorkerSeen(info))
        elapsed_s = time.perf_counter() - began_s
    taken = sorted(fleet.taken_ns)
    return {
        "queued_jobs": sum(pool.queued for pool in fleet.scheduler.pools()),
        "workers": worker_count,
        "events": len(taken),
        "handle_p50_ms": round(taken[len(taken) // 2] / 1e6, 4),
        "handle_p99_ms": round(taken[int(0.99 * len(taken))] / 1e6, 4),
        "handle_max_ms": round(taken[-1] / 1e6, 2),
        "events_per_s": round(len(taken) / elapsed_s),
        "submit_p50_us": round(submit_us, 1),
        "fill_s": round(fill_s, 1),
    }


def memory(job_count: int, worker_count: int) -> dict[str, object]:
    """Bytes that a queued job takes, its request included."""
    random = Random(1)
    config = SchedulerConfig(pools=POOLS, max_queued_jobs=MOST_S)
    scheduler = Scheduler(config)
    for info in crew(worker_count):
        scheduler.handle(WorkerSeen(info), 0.0)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(job_count):
        scheduler.handle(JobSubmitted(a_job(number, random)), 1e-6 * number)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"bytes_per_job": round((after - before) / job_count)}


def run(options: argparse.Namespace) -> dict[str, object]:
    return {
        "benchmark": "scheduler",
        "cores": os.cpu_count(),
        **simulation(options.simulated),
        **memory(options.jobs // 5, options.workers),
        **depth(options.jobs, options.workers, options.events),
    }


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs in the queue")
    parser.add_argument("--workers", type=int, default=256, help="workers of the deep queue")
    parser.add_argument("--events", type=int, default=50_000, help="events that are timed in the deep queue")
    parser.add_argument("--simulated", type=int, default=50_000, help="jobs of the simulation")
    options = parser.parse_args()
    tell(run(options), options.json)


if __name__ == "__main__":
    main()
