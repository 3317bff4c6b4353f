"""Payloads in chunks, a bounded window of them on their way."""

import asyncio
import mmap
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from typing import TypeVar

from triptych.exchange.connection import Connection
from triptych.exchange.digest import RunningDigest
from triptych.exchange.errors import BundleCorrupt, BundleGone
from triptych.exchange.store import Store
from triptych.v1.tensor_pb2 import BundleManifest, DataRef

T = TypeVar("T")


class Window:
    """Bounds what is on its way in one direction, over all transfers of the process, in order of arrival."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._free = asyncio.Semaphore(slots)

    async def run(self, items: Iterator[T], step: Callable[[T], Awaitable[None]]) -> None:
        """Await `step` of every item, several at once. The first failure ends the rest and is raised."""

        async def work() -> None:
            for item in items:
                async with self._free:
                    await step(item)

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._slots):
                    tasks.create_task(work())
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None


def aligned_buffer(byte_size: int) -> memoryview:
    """A writable buffer that begins on a page, so that spans at multiples of 64 stay aligned to 64 in memory.

    torch's own allocations are, and some CPU kernels round differently on other addresses.
    """
    return memoryview(mmap.mmap(-1, byte_size)) if byte_size else memoryview(bytearray())


async def send_chunks(
    connection: Connection, window: Window, store: Store, bundle_id: str, pieces: Iterator[memoryview | bytes]
) -> int:
    """Store a payload's pieces as chunks 0, 1, …; returns how many, all of them acknowledged.

    Raises StoreFull and ExchangeUnavailable.
    """
    sent = 0

    async def send(item: tuple[int, memoryview | bytes]) -> None:
        nonlocal sent
        index, piece = item
        await store.write(connection, store.chunk_subject(bundle_id, index), piece)
        sent += 1

    await window.run(enumerate(pieces), send)
    return sent


class Download:
    """Fetches one payload's chunks into a buffer, and hashes the part that is complete from the front."""

    def __init__(self, ref: DataRef, manifest: BundleManifest, executor: Executor) -> None:
        self._ref = ref
        self._store = Store.of(ref)
        self._manifest = manifest
        self._buffer = aligned_buffer(manifest.byte_size)
        self._digest = RunningDigest(executor)
        self._arrived: set[int] = set()
        self._hashed = 0

    async def run(self, connection: Connection, window: Window) -> memoryview:
        """The payload, whose digest has been compared with the manifest's.

        Raises BundleGone when a chunk is missing, BundleCorrupt when one differs, and ExchangeUnavailable.
        """

        async def fetch(index: int) -> None:
            subject = self._store.chunk_subject(self._ref.bundle_id, index)
            self._accept(index, await self._store.read(connection, subject))

        await window.run(iter(range(self._manifest.chunk_count)), fetch)
        if await self._digest.result() != self._manifest.digest:
            raise BundleCorrupt(self._ref, "the digest differs")
        return self._buffer

    def _accept(self, index: int, data: bytes | None) -> None:
        if data is None:
            raise BundleGone(self._ref)
        place = self._place(index)
        if len(data) != place.nbytes:
            raise BundleCorrupt(self._ref, f"chunk {index} has {len(data)} bytes of {place.nbytes}")
        place[:] = data
        self._arrived.add(index)
        while self._hashed in self._arrived:
            self._digest.feed(self._place(self._hashed))
            self._hashed += 1

    def _place(self, index: int) -> memoryview:
        start = index * self._manifest.chunk_bytes
        return self._buffer[start : start + self._manifest.chunk_bytes]
