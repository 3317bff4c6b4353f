"""Throughput of the exchange beside raw core NATS, for the same bytes in the same run.

The raw arm publishes 1 MiB messages with one flush at the end to a subscriber in another process, and is timed to the
last byte there; its digest is checked off the clock. The exchange's put is timed to the commit, its get to the verified
bundle: hashing, acknowledgement and file storage are on its clock. Best of `ROUNDS`, arms taken in turn.

    python -m bench.exchange --json
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import nats
from nats.js.api import ObjectStoreConfig

from bench.program import options_of
from tests.natsd import NatsServer
from triptych.exchange import Entry, Exchange, ExchangeConfig, TensorData
from triptych.exchange.digest import digest_of

MIB = 1 << 20
SIZES_MIB = (0.125, 0.5, 4.0, 16.0, 64.0)
# Below this the raw arm times little but its first message.
SMALLEST_JUDGED_MIB = 0.5
OBJECT_STORE_MIB = 64.0
ROUNDS = 5
RAW_MESSAGE_BYTES = MIB
RAW_SUBJECT = "raw.bytes"
PENDING_BYTES = 1 << 30


@dataclass
class SizeResult:
    """One size's best rates, MiB/s, and the lower of put and get as a share of raw."""

    size_mib: float
    raw: float
    put: float
    get: float
    ratio: float


class RawSubscriber:
    """The raw arm's other process: counts bytes of one transfer after another, and tells when each was complete."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, url: str) -> "RawSubscriber":
        """Start it and wait until it has subscribed."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.raw_subscriber", url, RAW_SUBJECT,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        subscriber = cls(process)
        await subscriber.line()
        return subscriber

    async def expect(self, byte_size: int) -> None:
        """Tell it how many bytes come next; returns when it has begun to count."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{byte_size}\n".encode())
        await self.line()

    async def line(self) -> str:
        """Its next line."""
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()

    async def stop(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


async def time_raw(client: nats.NATS, subscriber: RawSubscriber, data: bytes) -> float:
    """Seconds from the first publish to the last byte's arrival in the other process."""
    await subscriber.expect(len(data))
    start = time.monotonic()
    for at in range(0, len(data), RAW_MESSAGE_BYTES):
        await client.publish(RAW_SUBJECT, data[at : at + RAW_MESSAGE_BYTES])
    await client.flush()
    end, digest = (await subscriber.line()).split()
    if bytes.fromhex(digest) != digest_of([data]):
        raise RuntimeError("the raw arm lost bytes")
    return float(end) - start


async def time_exchange(exchange: Exchange, data: bytes) -> tuple[float, float]:
    """Seconds of a put and of the get that follows."""
    bundle = {"latents": Entry(TensorData("uint8", (len(data),), data))}
    start = time.monotonic()
    ref = await exchange.put("latents", bundle)
    stored = time.monotonic()
    found = await exchange.get(ref)
    end = time.monotonic()
    if found != bundle:
        raise RuntimeError("the exchange lost bytes")
    await exchange.delete(ref)
    return stored - start, end - stored


async def measure(exchange: Exchange, client: nats.NATS, subscriber: RawSubscriber, size_mib: float) -> SizeResult:
    """Best of `ROUNDS` for one size."""
    data = os.urandom(int(size_mib * MIB))
    raw, put, get = [], [], []
    for _ in range(ROUNDS):
        raw.append(await time_raw(client, subscriber, data))
        put_s, get_s = await time_exchange(exchange, data)
        put.append(put_s)
        get.append(get_s)
    best = [size_mib / min(seconds) for seconds in (raw, put, get)]
    rates = [round(rate, 1) for rate in best]
    return SizeResult(size_mib, rates[0], rates[1], rates[2], round(min(best[1:]) / best[0], 3))


async def measure_object_store(client: nats.NATS, exchange: Exchange) -> dict[str, float]:
    """Seconds of one get through nats-py's object store beside the exchange's, and their ratio."""
    data = os.urandom(int(OBJECT_STORE_MIB * MIB))
    store = await client.jetstream(timeout=60).create_object_store("bench", ObjectStoreConfig(max_bytes=256 * MIB))
    await store.put("latents", data)
    start = time.monotonic()
    found = await store.get("latents")
    object_store_s = time.monotonic() - start
    if found.data != data:
        raise RuntimeError("the object store lost bytes")
    exchange_s = min([(await time_exchange(exchange, data))[1] for _ in range(ROUNDS)])
    return {
        "size_mib": OBJECT_STORE_MIB,
        "object_store_get_s": round(object_store_s, 3),
        "exchange_get_s": round(exchange_s, 3),
        "ratio": round(object_store_s / exchange_s, 1),
    }


@contextmanager
def server(config: Path | None) -> Iterator[NatsServer]:
    """A nats-server with a file store that is thrown away afterwards."""
    with tempfile.TemporaryDirectory() as store_dir:
        server = NatsServer(Path(store_dir), config)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@asynccontextmanager
async def arms(url: str) -> AsyncIterator[tuple[Exchange, nats.NATS, RawSubscriber]]:
    """Both arms, ready to run."""
    subscriber = await RawSubscriber.start(url)
    client = await nats.connect(url, pending_size=PENDING_BYTES)
    try:
        async with Exchange(ExchangeConfig(url=url)) as exchange:
            yield exchange, client, subscriber
    finally:
        await client.close()
        await subscriber.stop()


async def run(url: str) -> dict[str, object]:
    """All sizes, then the object store."""
    async with arms(url) as (exchange, client, subscriber):
        results = [await measure(exchange, client, subscriber, size) for size in SIZES_MIB]
        object_store = await measure_object_store(client, exchange)
    return {
        "bench": "exchange",
        "unit": "MiB/s",
        "cpus": os.cpu_count(),
        "sizes": [asdict(result) for result in results],
        "min_ratio": min(result.ratio for result in results if result.size_mib >= SMALLEST_JUDGED_MIB),
        "object_store": object_store,
    }


def render(report: dict[str, object]) -> str:
    """The report as lines for people."""
    lines = [f"{key}: {value}" for key, value in report.items() if key != "sizes"]
    sizes = report["sizes"]
    assert isinstance(sizes, list)
    return "\n".join([*(str(size) for size in sizes), *lines])


def main() -> None:
    """Entry point."""
    parser = options_of(__doc__)
    parser.add_argument("--server-config", type=Path, help="another nats.conf, to measure other settings of the server")
    options = parser.parse_args()
    with server(options.server_config) as running:
        report = asyncio.run(run(running.url))
    print(json.dumps(report) if options.json else render(report))


if __name__ == "__main__":
    main()
