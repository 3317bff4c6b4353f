"""Cancel a job once it has done a few steps: `python examples/cancel.py`.

Its denoiser stops before the next block, and the event stream ends with `cancelled`.
"""

import asyncio

from triptych.client import Client
from triptych.v1.job_pb2 import JobSpec


async def main() -> None:
    async with Client() as client:
        prompt = "a large green cross in the center on a white background"
        spec = JobSpec(model="shapes", prompt=prompt, step_count=100, output_count=4)
        job = await client.submit(spec)
        async for event in client.watch(job.job_id):
            if event.WhichOneof("event") == "progress" and event.progress.step >= 3:
                await client.cancel(job.job_id)
        print(f"ended with: {event.WhichOneof('event')}")


if __name__ == "__main__":
    asyncio.run(main())
