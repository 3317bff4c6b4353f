"""An output, chunk by chunk."""

from typing import TYPE_CHECKING, Any

import grpc

from triptych.client.media import Media
from triptych.errors import Reason, TriptychError
from triptych.rpc.responses import responses
from triptych.v1 import job_pb2

if TYPE_CHECKING:
    from triptych.v1.router_service_pb2 import DownloadOutputResponse


async def collect(chunks: "grpc.aio.UnaryStreamCall[Any, DownloadOutputResponse]") -> Media:
    """The whole output, in memory. Raises `TriptychError` (BUNDLE_CORRUPT) if something is missing in between."""
    output = job_pb2.Output()
    data = bytearray()
    async with responses(chunks) as received:
        async for response in received:
            if response.WhichOneof("event") == "output":
                output = response.output
                continue
            if response.chunk.offset != len(data):
                raise TriptychError(Reason.BUNDLE_CORRUPT, f"A chunk is missing at byte {len(data)} of the output.")
            data += response.chunk.data
    return Media(output, bytes(data))
