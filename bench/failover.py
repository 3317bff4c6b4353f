"""What the death of the leading router costs: a whole suite on this machine, two routers, jobs all the while.

Each round kills the leader (SIGKILL), which stays away for `--away-s` seconds: the standby waits the rest of the lease,
and leads. `recovery_s` is from the kill to the answer to a job submitted at once to the other router; `done_s` until
that job's pictures are made. Meanwhile clients submit and watch jobs, at either router: a call that fails is made once
more, at the other router (`retries`); one that fails again is an error. Every job must succeed.

    python -m bench.failover --json
"""

import asyncio
import sys
import time
import uuid
from collections import Counter
from statistics import median
from typing import Any

import grpc

from bench.program import bench_folder, options_of, tell
from bench.trial.leader import find_leader
from bench.trial.models import write_router_config
from triptych.exchange import Exchange
from triptych.rpc import open_channel
from triptych.supervisor import RestartPolicy, Suite, SuiteConfig, default_catalog
from triptych.supervisor.config import router_name
from triptych.v1 import router_service_pb2 as pb
from triptych.v1.job_pb2 import JobSpec
from triptych.v1.router_service_pb2_grpc import RouterServiceStub

CLIENTS = 3
ENDS = ("succeeded", "failed", "cancelled")
SPEC = JobSpec(model="shapes", prompt="a large red circle in the center on a white background", step_count=6)


class Load:
    """Clients that submit and watch jobs one after the other until `stopping`; what came of it is counted."""

    def __init__(self, stubs: list[Any]) -> None:
        self.counts: Counter[str] = Counter()
        self.stopping = False
        self._stubs = stubs

    async def run(self, number: int) -> None:
        first = number
        while not self.stopping:
            first += 1
            request = pb.SubmitJobRequest(spec=SPEC, request_id=uuid.uuid4().hex)
            response = await self._twice(first, lambda stub, request=request: stub.SubmitJob(request, timeout=15))
            if response is not None:
                await self._watch(first, response.job.job_id)
            await asyncio.sleep(0.1)

    async def _watch(self, first: int, job_id: str) -> None:
        """Follow the job to its end; a stream that is cut off is opened again where it was."""
        sequence, end = 0, ""

        async def follow(stub: Any) -> bool:
            nonlocal sequence, end
            opened_at = sequence
            try:
                async for response in stub.WatchJob(pb.WatchJobRequest(job_id=job_id, after_sequence=sequence)):
                    self.counts["events_out_of_order"] += response.event.sequence != sequence + 1
                    sequence = response.event.sequence
                    if (kind := str(response.event.WhichOneof("event"))) in ENDS:
                        end = kind
            except grpc.aio.AioRpcError:
                if sequence == opened_at:
                    raise
                self.counts["retries"] += 1
            return True

        while not end:
            if not await self._twice(first, follow):
                end = "given_up"
        self.counts[f"jobs_{end}"] += 1

    async def _twice(self, first: int, call: Any) -> Any:
        for turn in range(2):
            try:
                return await call(self._stubs[(first + turn) % len(self._stubs)])
            except grpc.aio.AioRpcError as error:
                self.counts["errors" if turn else "retries"] += 1
                if turn:
                    print(f"{error.code().name}: {error.details()}", file=sys.stderr)
        return None


async def measure(suite: Suite, rounds: int) -> dict[str, object]:
    names = [router_name(index) for index in range(suite.config.routers)]
    addresses = {name: suite.processes[name].address or "" for name in names}
    channels = {name: open_channel(address) for name, address in addresses.items()}
    stubs = {name: RouterServiceStub(channel) for name, channel in channels.items()}
    load = Load(list(stubs.values()))
    running = [asyncio.create_task(load.run(number)) for number in range(CLIENTS)]
    recovery_s, done_s = [], []
    async with Exchange(suite.exchange) as exchange:
        for _ in range(rounds):
            await asyncio.sleep(1.0)
            leader = await find_leader(exchange, addresses)
            other = next(name for name in names if name != leader)
            began_s = time.perf_counter()
            await suite.kill(leader)
            probe = pb.SubmitJobRequest(spec=SPEC, request_id=uuid.uuid4().hex)
            job = (await stubs[other].SubmitJob(probe, timeout=30)).job
            recovery_s.append(time.perf_counter() - began_s)
            async for _event in stubs[other].WatchJob(pb.WatchJobRequest(job_id=job.job_id)):
                pass
            done_s.append(time.perf_counter() - began_s)
            await suite.wait_ready(*names)
            # Each has been dialled again.
            await asyncio.gather(*(channel.channel_ready() for channel in channels.values()))
    load.stopping = True
    await asyncio.gather(*running)
    await asyncio.gather(*(channel.close() for channel in channels.values()))
    return {
        "benchmark": "failover",
        "kills": rounds,
        "recovery_s_median": round(median(recovery_s), 2),
        "recovery_s_max": round(max(recovery_s), 2),
        "done_s_median": round(median(done_s), 2),
        "done_s_max": round(max(done_s), 2),
        "retries": load.counts["retries"],
        "errors_beyond_one_retry": load.counts["errors"],
        "events_out_of_order": load.counts["events_out_of_order"],
        "jobs": {kind.removeprefix("jobs_"): n for kind, n in sorted(load.counts.items()) if kind.startswith("jobs_")},
    }


async def run(rounds: int, away_s: float) -> dict[str, object]:
    catalog = default_catalog()
    assert catalog is not None
    with bench_folder() as folder:
        config = SuiteConfig(
            state_dir=folder,
            catalog=catalog,
            router_config=write_router_config(folder),
            routers=2,
            device="cpu",
            threads=1,
            stage_threads=1,
            drain_s=2.0,
            restarts=RestartPolicy(first_pause_s=away_s, max_pause_s=away_s),
        )
        async with Suite(config) as suite:
            return {**await measure(suite, rounds), "away_s": away_s}


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--kills", type=int, default=10, metavar="N", help="leaders to kill (default 10)")
    parser.add_argument("--away-s", type=float, default=12.0, metavar="S", help="until it is back (default 12)")
    options = parser.parse_args()
    tell(asyncio.run(run(options.kills, options.away_s)), options.json)


if __name__ == "__main__":
    main()
