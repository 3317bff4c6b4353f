"""Make a picture and save it: `python examples/generate.py PROMPT FILE`.

It talks to $TRIPTYCH_ROUTER, to the suite that runs here (`triptych up`), or to 127.0.0.1:7460.
"""

import asyncio
import sys

from triptych.client import Client
from triptych.v1.job_pb2 import JobSpec


async def main(prompt: str, path: str) -> None:
    async with Client() as client:
        [picture] = await client.generate(JobSpec(model="shapes", prompt=prompt))
    print(f"{picture.save(path)}: seed {picture.output.seed}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:3]))
