"""Many watchers of a few jobs, in a process of their own: `python -m bench.trial.watchers ADDRESS COUNT JOB_ID…`.

Prints "ready" when all watch, and at the end one JSON object: how many saw a whole log, and what went wrong.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence

from bench.trial.accounts import flaws
from triptych.client import Client
from triptych.errors import TriptychError
from triptych.v1.job_pb2 import JobEvent

# Streams a connection.
PER_CLIENT = 50


class Watchers:
    """So many watchers, who share the jobs evenly and watch each to its end."""

    def __init__(self, address: str, count: int, job_ids: Sequence[str]) -> None:
        self.outcomes: Counter[str] = Counter()
        self._address = address
        self._count = count
        self._job_ids = job_ids
        self._watching = 0
        self.ready = asyncio.Event()

    async def run(self) -> None:
        starts = range(0, self._count, PER_CLIENT)
        await asyncio.gather(*(self._share(start, min(start + PER_CLIENT, self._count)) for start in starts))

    async def _share(self, start: int, stop: int) -> None:
        async with Client(self._address) as client:
            await client.fleet()
            places = range(start, stop)
            await asyncio.gather(*(self._watch(client, self._job_ids[each % len(self._job_ids)]) for each in places))

    async def _watch(self, client: Client, job_id: str) -> None:
        log: list[JobEvent] = []
        try:
            async for event in client.watch(job_id):
                if not log:
                    self._watching += 1
                    if self._watching == self._count:
                        self.ready.set()
                log.append(event)
        except TriptychError as error:
            self.outcomes[f"{error.reason.name}: {error.message}"] += 1
        else:
            self.outcomes["; ".join(flaws(log, 1)) or "whole"] += 1


async def run(address: str, count: int, job_ids: Sequence[str]) -> None:
    watchers = Watchers(address, count, job_ids)
    running = asyncio.create_task(watchers.run())
    waiting = asyncio.create_task(watchers.ready.wait())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    print("ready", flush=True)
    await running
    print(json.dumps(watchers.outcomes), flush=True)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
