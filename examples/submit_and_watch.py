"""Hand in a job, follow its events, and fetch what came of it: `python examples/submit_and_watch.py PROMPT FOLDER`.

The job lives at the router: the two halves may run in different processes, or after a crash of either side.
"""

import asyncio
import sys
from pathlib import Path
from zlib import crc32

from triptych.client import Client
from triptych.v1.job_pb2 import JobSpec


async def main(prompt: str, folder: str) -> None:
    async with Client() as client:
        # The request id makes it safe to repeat the call: the same job, however often it is handed in.
        spec = JobSpec(model="shapes", prompt=prompt, output_count=2, seed=7)
        job = await client.submit(spec, request_id=f"example-{crc32((prompt + folder).encode()):08x}")
        print(f"job {job.job_id}")

        async for event in client.watch(job.job_id):
            kind = event.WhichOneof("event")
            if kind == "progress":
                print(f"  step {event.progress.step} of {event.progress.step_count}")
            elif kind == "output":
                media = await client.download(job.job_id, event.output.index)
                print(f"  {media.save(Path(folder) / f'{event.output.index}{media.suffix}')}")
            else:
                print(f"  {kind}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:3]))
