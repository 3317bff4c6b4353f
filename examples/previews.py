"""See a picture come about: `python examples/previews.py PROMPT FOLDER`.

Previews come between a job's events. One that is late is dropped, so there may be fewer than were asked for.
"""

import asyncio
import sys
from pathlib import Path

from triptych.client import Client, Media, replace_file
from triptych.v1.job_pb2 import JobSpec, Preview, PreviewPolicy


async def main(prompt: str, folder: str) -> None:
    spec = JobSpec(model="shapes", prompt=prompt, step_count=60, preview=PreviewPolicy(every_steps=3, max_side=96))
    async with Client() as client:
        async for item in client.stream(spec):
            if isinstance(item, Preview):
                path = replace_file(Path(folder) / f"step-{item.step:02}.webp", item.data)
                print(f"after step {item.step} of {item.step_count}: {path}")
            elif isinstance(item, Media):
                print(f"the picture: {item.save(Path(folder) / 'picture.png')}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:3]))
