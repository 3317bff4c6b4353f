"""See who works and what there is to run: `python examples/fleet.py`."""

import asyncio

from triptych.client import Client
from triptych.v1.job_pb2 import Stage
from triptych.v1.worker_pb2 import WorkerState


async def main() -> None:
    async with Client() as client:
        for model in await client.models():
            print(f"{model.name}: {model.description}")
        for worker in (await client.fleet()).workers:
            stage = Stage.Name(worker.stage).removeprefix("STAGE_").lower()
            state = WorkerState.Name(worker.state).removeprefix("WORKER_STATE_").lower()
            backlog_s = worker.backlog.ToNanoseconds() / 1e9
            print(f"{worker.worker_id}: {stage}, {state}, on {worker.device}, {backlog_s:.1f} s left")


if __name__ == "__main__":
    asyncio.run(main())
