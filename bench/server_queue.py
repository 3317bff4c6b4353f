"""A queue M/G/k, simulated by the scheduler and by SimPy: their waits must be equal."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random

import simpy

from services.router.core.actions import StartTask
from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.events import Event, JobSubmitted, TaskFinished, WorkerSeen
from services.router.core.job import JobRequest, Stage, StageSeconds, WorkerInfo
from services.router.core.scheduler import Scheduler

_ANY_NUMBER = 10**9


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
    pool = PoolConfig("all", max_backlog_s=inf)
    scheduler = Scheduler(SchedulerConfig(policy="fcfs", pools=(pool,), max_queued_jobs=_ANY_NUMBER))
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
