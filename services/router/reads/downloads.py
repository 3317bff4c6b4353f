"""Outputs on their way to clients."""

import asyncio
from collections.abc import AsyncGenerator, Callable

from triptych.endings import is_over
from triptych.errors import Reason, TriptychError
from triptych.exchange import Exchange
from triptych.outputs import FILE
from triptych.v1.job_pb2 import Job, Output
from triptych.v1.router_service_pb2 import OutputChunk

CHUNK_BYTES = 1024 * 1024


class Downloads:
    """Fetches outputs whole and hands them out in chunks; at most `limit` are in memory at once, the others wait.

    Whoever takes no chunk for `stall_s` seconds loses its place: a few who do not read would keep all others waiting.
    """

    def __init__(self, exchange: Exchange, limit: int, stall_s: float = 60.0) -> None:
        self._exchange = exchange
        self._free = asyncio.Semaphore(limit)
        self._stall_s = stall_s

    async def chunks(self, output: Output) -> AsyncGenerator[OutputChunk, None]:
        """The output's file, in order; an empty one is one empty chunk.

        Raises OUTPUT_GONE, BUNDLE_CORRUPT, EXCHANGE_UNAVAILABLE; TOO_MANY_STREAMS for who has lost its place.
        """
        await self._free.acquire()
        place = _Place(self._free.release)
        try:
            place.file = await self._fetch(output)
            for offset in range(0, max(1, len(place.file)), CHUNK_BYTES):
                if place.lost:
                    why = f"The download was not read for {self._stall_s:g} s and made room for others; begin again."
                    raise TriptychError(Reason.TOO_MANY_STREAMS, why, retry_after_s=1.0)
                piece = bytes(place.file[offset : offset + CHUNK_BYTES])
                stalled = asyncio.get_running_loop().call_later(self._stall_s, place.leave)
                try:
                    yield OutputChunk(output_index=output.index, offset=offset, data=piece)
                finally:
                    stalled.cancel()
        finally:
            place.leave()

    async def _fetch(self, output: Output) -> memoryview:
        bundle = await self._exchange.get(output.data)
        file = bundle[FILE].value if FILE in bundle else None
        if not isinstance(file, bytes | bytearray | memoryview):
            raise TriptychError(Reason.BUNDLE_CORRUPT, "The output's bundle holds no file.")
        return memoryview(file)


class _Place:
    """Room for one output in memory, until it is left."""

    def __init__(self, release: Callable[[], None]) -> None:
        self.file = memoryview(b"")
        self.lost = False
        self._release = release

    def leave(self) -> None:
        """Forget the file and let another in."""
        if not self.lost:
            self.lost = True
            self.file = memoryview(b"")
            self._release()


def find_output(job: Job, index: int) -> Output:
    """Raises OUTPUT_NOT_READY, OUTPUT_UNKNOWN."""
    for output in job.outputs:
        if output.index == index:
            return output
    if index >= job.spec.output_count:
        raise TriptychError(Reason.OUTPUT_UNKNOWN, f"The job has {job.spec.output_count} outputs, counted from 0.")
    if is_over(job):
        raise TriptychError(Reason.OUTPUT_UNKNOWN, f"The job ended without output {index}.")
    raise TriptychError(Reason.OUTPUT_NOT_READY, f"Output {index} is not made yet; WatchJob tells when it is.")
