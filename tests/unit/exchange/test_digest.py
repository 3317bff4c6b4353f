"""The digest that is computed while bytes arrive."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

from triptych.exchange.digest import RunningDigest, digest_of


async def test_a_running_digest_equals_one_of_the_whole() -> None:
    parts = [bytes([index]) * 4096 for index in range(50)]
    with ThreadPoolExecutor(1) as executor:
        running = RunningDigest(executor)
        for part in parts:
            running.feed(memoryview(part))
        assert await running.result() == hashlib.blake2b(b"".join(parts), digest_size=32).digest() == digest_of(parts)


async def test_the_digest_of_nothing() -> None:
    with ThreadPoolExecutor(1) as executor:
        assert await RunningDigest(executor).result() == digest_of([])
