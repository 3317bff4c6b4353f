"""Ask what jobs would cost before running any: `python examples/estimate.py`.

The router prices work in seconds of the device that would run it, and says whether it would take it now.
"""

import asyncio

from triptych.client import Client
from triptych.errors import TriptychError
from triptych.v1.job_pb2 import JobSpec


async def main() -> None:
    async with Client() as client:
        for side, step_count in ((64, 10), (96, 20), (128, 100), (4096, 20)):
            spec = JobSpec(model="shapes", prompt="a star", width=side, height=side, step_count=step_count)
            try:
                answer = await client.estimate(spec)
            except TriptychError as error:
                print(f"{side:4} px, {step_count:3} steps: {error.reason.name}: {error.message}")
                continue
            estimate_s = answer.estimate.total.ToNanoseconds() / 1e9
            verdict = "taken" if answer.verdict.admitted else f"refused, {answer.verdict.reason}"
            print(f"{side:4} px, {step_count:3} steps: {estimate_s:.2f} s, {verdict}")


if __name__ == "__main__":
    asyncio.run(main())
