"""Outputs on their way to clients."""

import asyncio
from collections.abc import AsyncGenerator

from triptych.endings import is_over
from triptych.errors import Reason, TriptychError
from triptych.exchange import Exchange
from triptych.v1.job_pb2 import Job, Output
from triptych.v1.router_service_pb2 import OutputChunk

CHUNK_BYTES = 1024 * 1024
# The one value of an output's bundle.
FILE = "file"


class Downloads:
    """Fetches outputs whole and hands them out in chunks; at most `limit` are in memory at once, the others wait."""

    def __init__(self, exchange: Exchange, limit: int) -> None:
        self._exchange = exchange
        self._free = asyncio.Semaphore(limit)

    async def chunks(self, output: Output) -> AsyncGenerator[OutputChunk, None]:
        """The output's file, in order; an empty one is one empty chunk.

        Raises OUTPUT_GONE, BUNDLE_CORRUPT, EXCHANGE_UNAVAILABLE.
        """
        async with self._free:
            bundle = await self._exchange.get(output.data)
            file = bundle[FILE].value if FILE in bundle else None
            if not isinstance(file, bytes | bytearray | memoryview):
                raise TriptychError(Reason.BUNDLE_CORRUPT, "The output's bundle holds no file.")
            data = memoryview(file)
            for offset in range(0, max(1, len(data)), CHUNK_BYTES):
                piece = bytes(data[offset : offset + CHUNK_BYTES])
                yield OutputChunk(output_index=output.index, offset=offset, data=piece)


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
