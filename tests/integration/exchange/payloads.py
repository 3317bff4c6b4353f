"""Bundles for the tests, and the stores as the server sees them."""

import os

from triptych.exchange import Entry, Exchange, TensorData
from triptych.exchange.store import STREAMS
from triptych.v1.tensor_pb2 import DataRef

MIB = 1 << 20


def bundle_of(byte_size: int) -> dict[str, Entry]:
    """One array of random bytes."""
    return {"latents": Entry(TensorData("uint8", (byte_size,), os.urandom(byte_size)), "latents_field")}


def data_of(bundle: dict[str, Entry]) -> memoryview:
    """The bytes of `bundle_of`'s array."""
    tensor = bundle["latents"].value
    assert isinstance(tensor, TensorData)
    return memoryview(tensor.data)


async def message_count(exchange: Exchange, store: str = "latents") -> int:
    """How many messages a store holds."""
    info = await exchange.jetstream.stream_info(STREAMS[store])
    count: int = info.state.messages
    return count


def subject(ref: DataRef, part: str) -> str:
    """Where a bundle's chunk, or its manifest "m", lies."""
    return f"tt.{ref.store}.{ref.bundle_id}.{part}"
