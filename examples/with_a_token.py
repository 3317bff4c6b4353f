"""Work for one tenant of a router that asks for tokens: `python examples/with_a_token.py TENANT FILE`.

The token is in $TRIPTYCH_TOKEN. For a suite of one's own (`triptych up --auth`) this makes one:
`triptych token new --tenant TENANT --file .triptych/secrets/router/tokens.toml`.
"""

import asyncio
import os
import sys

from triptych.client import Client
from triptych.errors import TriptychError
from triptych.v1.job_pb2 import JobSpec


async def main(tenant: str, path: str) -> None:
    async with Client(token=os.environ["TRIPTYCH_TOKEN"]) as client:
        [picture] = await client.generate(JobSpec(model="shapes", prompt="a small red circle", step_count=4))
        print(f"{picture.save(path)}: made for {tenant}")
        # Of what other tenants have asked for there is nothing.
        print(f"jobs of: {', '.join({job.tenant for job in await client.jobs()})}")
    async with Client(token="not-a-token-of-this-router") as stranger:
        try:
            await stranger.models()
        except TriptychError as error:
            print(f"with another token: {error.reason.name}")


if __name__ == "__main__":
    if len(sys.argv) != 3 or "TRIPTYCH_TOKEN" not in os.environ:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:3]))
