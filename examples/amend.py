"""Finish a job early, then refine what came of it: `python examples/amend.py FOLDER`.

A running job is changed in place. A finished one stays as it is, and more steps make a new job that goes on from it.
"""

import asyncio
import sys
from pathlib import Path

from triptych.client import Client
from triptych.v1.job_pb2 import JobSpec


async def main(folder: Path) -> None:
    async with Client() as client:
        prompt = "a large green cross in the center on a white background"
        job = await client.submit(JobSpec(model="shapes", prompt=prompt, seed=3, step_count=100))
        async for event in client.watch(job.job_id):
            if event.WhichOneof("event") == "progress" and event.progress.step >= 3:
                break
        await client.amend(job.job_id, finish_now=True)
        early = await finished(client, job.job_id, folder / "early.png")
        print(f"finished early with {early} steps: {folder / 'early.png'}")

        refined = await client.amend(job.job_id, step_count=early + 12)
        print(f"{refined.job_id} goes on from it")
        await finished(client, refined.job_id, folder / "refined.png")
        print(f"refined: {folder / 'refined.png'}")


async def finished(client: Client, job_id: str, path: Path) -> int:
    """Wait for a job and save its picture; the steps that it has run."""
    async for _ in client.watch(job_id):
        pass
    media = await client.download(job_id)
    media.save(path)
    return (await client.job(job_id)).spec.step_count


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".")))
