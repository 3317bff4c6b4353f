"""The scheduler alone: how long an event takes with a deep queue and a large fleet, and how fast it simulates.

Depth: jobs of many tenants, models and lengths are handed in until 100,000 wait for 1,000 workers; then the fleet works
on them, and every job that ends is followed by a new one. Workers report progress; some jobs are cancelled; workers
leave and come back. Each call of `handle` is timed. Bytes a job are the scheduler's and those of the request itself, by
tracemalloc, in a run of its own with a fifth of the jobs.

Simulation: a queue M/G/k (Poisson arrivals, lognormal service, k servers, first come first served, nobody turned away)
through the same `handle`, beside the same arrivals and services in SimPy. Their waits must be equal.

    python -m bench.scheduler --json
"""

import argparse
import gc
import json
import os
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random

import simpy

from services.router.core.actions import Action, AdmitJob, FinishJob, RejectJob, StartTask, StopTask
from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.events import (
    Event,
    JobCancelRequested,
    JobSubmitted,
    TaskFinished,
    TaskProgressed,
    WorkerLost,
    WorkerSeen,
)
from services.router.core.job import JobRequest, Stage, StageSeconds, Task, WorkerInfo
from services.router.core.scheduler import Scheduler

MODELS = tuple(f"model-{index}" for index in range(5))
CLASSES = ("batch", "standard", "standard", "premium")
TENANTS = tuple(f"tenant-{index}" for index in range(200))
MOST_S = 10**9
POOLS = (
    PoolConfig("interactive", max_estimate_s=20.0, long_job_s=20.0, max_backlog_s=MOST_S, borrow="idle"),
    PoolConfig(
        "long", max_backlog_s=MOST_S, max_job_s=MOST_S, short_job_s=20.0, long_job_s=600.0, borrow="preemptible"
    ),
)


def crew(worker_count: int) -> Iterator[WorkerInfo]:
    """Eight denoisers to one encoder and one decoder; each serves two of the models."""
    for index in range(worker_count):
        stage, slots = {0: (Stage.ENCODE, 8), 1: (Stage.DECODE, 4)}.get(index % 10, (Stage.DENOISE, 3))
        first = index // 10 % len(MODELS)
        models = frozenset({MODELS[first], MODELS[(first + 1) % len(MODELS)]})
        yield WorkerInfo(f"{stage.value}-{index:04}", stage, models, models, slots, True)


def a_job(number: int, random: Random) -> JobRequest:
    """Four images to one video; a few tenants ask for most of it."""
    denoise_s = random.lognormvariate(1.2, 0.6) if random.random() < 0.8 else random.lognormvariate(5.0, 0.6)
    tenant = TENANTS[min(len(TENANTS) - 1, int(random.paretovariate(0.8)) - 1)]
    seconds = StageSeconds(0.05, denoise_s, 0.02 * denoise_s)
    return JobRequest(f"job-{number:09}", tenant, random.choice(MODELS), random.choice(CLASSES), seconds)


@dataclass
class Fleet:
    """Plays a scheduler's workers, on a clock that jumps from event to event. `taken_ns`: time of each `handle`."""

    scheduler: Scheduler
    now: float = 0.0
    taken_ns: list[int] = field(default_factory=list)
    over: int = 0
    _queue: list[tuple[float, int, Event]] = field(default_factory=list)
    _calls: dict[Task, tuple[int, str]] = field(default_factory=dict)
    _jobs: dict[str, JobRequest] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def send(self, event: Event) -> None:
        if isinstance(event, JobSubmitted):
            self._jobs[event.request.job_id] = event.request
        began_ns = time.perf_counter_ns()
        actions = self.scheduler.handle(event, self.now)
        self.taken_ns.append(time.perf_counter_ns() - began_ns)
        for action in actions:
            self._perform(action)

    def step(self) -> None:
        """The next report of a call that still goes on."""
        while True:
            self.now, number, event = heappop(self._queue)
            assert isinstance(event, TaskFinished | TaskProgressed)
            if self._calls.get(event.task, (0, ""))[0] == number:
                break
        if isinstance(event, TaskFinished):
            del self._calls[event.task]
        self.send(event)

    def lose(self, worker_id: str) -> None:
        for task in [task for task, (_, place) in self._calls.items() if place == worker_id]:
            del self._calls[task]
        self.send(WorkerLost(worker_id))

    def _perform(self, action: Action) -> None:
        match action:
            case StartTask(task, worker_id):
                job = self._jobs[task.job_id]
                seconds = {
                    Stage.ENCODE: job.seconds.encode_s,
                    Stage.DENOISE: job.seconds.denoise_s,
                    Stage.DECODE: job.seconds.decode_s,
                }[task.stage]
                number = next(self._numbers) + 1
                self._calls[task] = (number, worker_id)
                if task.stage is Stage.DENOISE:
                    heappush(self._queue, (self.now + seconds / 2, number, TaskProgressed(task, 0.5)))
                heappush(self._queue, (self.now + seconds, number, TaskFinished(task, seconds)))
            case StopTask(task):
                self._calls.pop(task, None)
            case FinishJob(job_id) | RejectJob(job_id):
                self._jobs.pop(job_id, None)
                self.over += 1
            case AdmitJob():
                pass


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


@dataclass(frozen=True)
class Arrivals:
    """Arrivals and services of a queue M/G/k, by seed."""

    job_count: int
    servers: int
    load: float

    def pairs(self) -> list[tuple[float, float]]:
        """Each job's arrival and service, in seconds."""
        random = Random(7)
        mean_s = 3.0
        at_s, pairs = 0.0, []
        for _ in range(self.job_count):
            at_s += random.expovariate(self.load * self.servers / mean_s)
            pairs.append((at_s, random.lognormvariate(0.0, 1.0) * mean_s / 1.6487212707001282))
        return pairs


def simulate(queue: Arrivals) -> tuple[float, float, int]:
    """Seconds of the host, the mean wait and the number of events, by the scheduler."""
    pairs = queue.pairs()
    began_s = time.perf_counter()
    pool = PoolConfig("all", max_job_s=inf)
    scheduler = Scheduler(SchedulerConfig(policy="fcfs", pools=(pool,), max_queued_jobs=MOST_S))
    models = frozenset({"m"})
    for index in range(queue.servers):
        scheduler.handle(WorkerSeen(WorkerInfo(f"w{index:03}", Stage.DENOISE, models, models, 1, True)), 0.0)
    only = frozenset({Stage.DENOISE})
    ends: list[tuple[float, str, TaskFinished]] = []
    coming = iter(pairs)
    job_ids = map("j{:07}".format, count())
    running: dict[str, tuple[float, float]] = {}
    waits = 0.0
    events = queue.servers
    arrival = next(coming, None)
    while arrival is not None or ends:
        if arrival is not None and (not ends or arrival[0] <= ends[0][0]):
            now, service_s = arrival
            job_id = next(job_ids)
            running[job_id] = arrival
            request = JobRequest(job_id, "t", "m", "standard", StageSeconds(0.0, service_s, 0.0), stages=only)
            event: Event = JobSubmitted(request)
            arrival = next(coming, None)
        else:
            now, _, event = heappop(ends)
        events += 1
        for action in scheduler.handle(event, now):
            if type(action) is StartTask:
                arrival_s, service_s = running.pop(action.task.job_id)
                waits += now - arrival_s
                heappush(ends, (now + service_s, action.task.job_id, TaskFinished(action.task, service_s)))
    return time.perf_counter() - began_s, waits / queue.job_count, events


def simulate_simpy(queue: Arrivals) -> tuple[float, float]:
    """Seconds of the host, and the mean wait, by SimPy."""
    pairs = queue.pairs()
    began_s = time.perf_counter()
    environment = simpy.Environment()
    servers = simpy.Resource(environment, queue.servers)
    waits = 0.0

    def job(service_s: float) -> Iterator[simpy.Event]:
        nonlocal waits
        arrival_s = environment.now
        with servers.request() as turn:
            yield turn
            waits += environment.now - arrival_s
            yield environment.timeout(service_s)

    def source() -> Iterator[simpy.Event]:
        for arrival_s, service_s in pairs:
            yield environment.timeout(arrival_s - environment.now)
            environment.process(job(service_s))

    environment.process(source())
    environment.run()
    return time.perf_counter() - began_s, waits / queue.job_count


def simulation(job_count: int) -> dict[str, object]:
    """Both simulations in turn, the better of three."""
    queue = Arrivals(job_count, servers=16, load=0.9)
    ours, theirs = [], []
    for _ in range(3):
        ours.append(simulate(queue))
        theirs.append(simulate_simpy(queue))
    wait_s, simpy_wait_s = ours[0][1], theirs[0][1]
    if abs(wait_s - simpy_wait_s) > 1e-6 * (1 + wait_s):
        raise SystemExit(f"the two do not simulate the same: mean waits {wait_s} s and {simpy_wait_s} s")
    seconds = min(taken_s for taken_s, _, _ in ours)
    return {
        "simulated_jobs": job_count,
        "simulated_events": ours[0][2],
        "simulated_mean_wait_s": round(wait_s, 4),
        "simulated_jobs_per_s": round(job_count / seconds),
        "simpy_ratio": round(seconds / min(taken_s for taken_s, _ in theirs), 2),
    }


def run(options: argparse.Namespace) -> dict[str, object]:
    return {
        "benchmark": "scheduler",
        "cores": os.cpu_count(),
        **simulation(options.simulated),
        **memory(options.jobs // 5, options.workers),
        **depth(options.jobs, options.workers, options.events),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--jobs", type=int, default=100_000, help="jobs in the queue")
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--events", type=int, default=50_000, help="events that are timed in the deep queue")
    parser.add_argument("--simulated", type=int, default=50_000, help="jobs of the simulation")
    result = run(options := parser.parse_args())
    if options.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{name:24} {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
