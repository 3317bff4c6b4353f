"""BLAKE2b-256 of a payload, computed beside the transfer."""

import asyncio
import hashlib
from collections.abc import Iterable
from concurrent.futures import Executor

DIGEST_BYTES = 32


def digest_of(buffers: Iterable[memoryview | bytes]) -> bytes:
    """BLAKE2b-256 of buffers taken as one; 32 bytes. Releases the GIL while at it."""
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for buffer in buffers:
        state.update(buffer)
    return state.digest()


class RunningDigest:
    """Hashes in an executor what has been fed so far, in order, while more is on its way.

    At most one call runs at a time and none ever waits, so that a stalled transfer holds no thread.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._state = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._waiting: list[memoryview] = []
        self._running: asyncio.Future[None] | None = None

    def feed(self, view: memoryview) -> None:
        """Append bytes; they must not change until `result`."""
        self._waiting.append(view)
        if self._running is None:
            self._start()

    async def result(self) -> bytes:
        """The digest of all that was fed; 32 bytes."""
        while self._running is not None:
            await asyncio.wait([self._running])
        return self._state.digest()

    def _start(self) -> None:
        batch, self._waiting = self._waiting, []
        loop = asyncio.get_running_loop()
        self._running = loop.run_in_executor(self._executor, self._update, batch)
        self._running.add_done_callback(self._ended)

    def _update(self, batch: list[memoryview]) -> None:
        for view in batch:
            self._state.update(view)

    def _ended(self, _: asyncio.Future[None]) -> None:
        self._running = None
        if self._waiting:
            self._start()
