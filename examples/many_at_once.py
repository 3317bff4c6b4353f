"""Make several pictures at once, the quickest first: `python examples/many_at_once.py FOLDER`.

Shorter work overtakes longer work, and a router that has too much to do says when to come back.
"""

import asyncio
import sys
from pathlib import Path

from triptych.client import Client
from triptych.errors import TriptychError
from triptych.v1.job_pb2 import JobSpec

MAX_TRIES = 5


async def make(client: Client, step_count: int, folder: Path) -> None:
    spec = JobSpec(
        model="shapes",
        prompt="a large yellow square in the center on a black background",
        step_count=step_count,
        seed=1,
    )
    for _ in range(MAX_TRIES):
        try:
            [picture] = await client.generate(spec)
        except TriptychError as error:
            if error.retry_after_s is None:
                raise
            await asyncio.sleep(error.retry_after_s)
        else:
            print(picture.save(folder / f"{step_count}.png"))
            return


async def main(folder: str) -> None:
    async with Client() as client:
        await asyncio.gather(*(make(client, step_count, Path(folder)) for step_count in (40, 4, 20)))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1]))
