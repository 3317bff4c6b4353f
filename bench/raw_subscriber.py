"""The subscriber of `bench.exchange`'s raw arm: `python -m bench.raw_subscriber URL SUBJECT`.

Reads a number of bytes to expect from each line of standard input; answers "go", and after the last byte the monotonic
time of its arrival and the BLAKE2b-256 of them all.
"""

import asyncio
import sys
import time

import nats

from triptych.exchange.digest import digest_of

PENDING_BYTES = 1 << 30
PATIENCE_S = 60.0


async def count(url: str, subject: str) -> None:
    """Serve until standard input ends."""
    client = await nats.connect(url)
    subscription = await client.subscribe(subject, pending_bytes_limit=PENDING_BYTES)
    await client.flush()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        print("go", flush=True)
        left, parts = int(line), []
        while left > 0:
            parts.append((await subscription.next_msg(timeout=PATIENCE_S)).data)
            left -= len(parts[-1])
        end = time.monotonic()
        print(end, digest_of(parts).hex(), flush=True)
    await client.close()


if __name__ == "__main__":
    asyncio.run(count(*sys.argv[1:3]))
