"""Puts what took long to make: where its store is full, or the disk, it waits for room."""

import asyncio
from collections.abc import Sequence
from itertools import repeat

import structlog

from triptych.exchange import Bundle, DiskFull, Exchange, StoreFull
from triptych.v1.tensor_pb2 import DataRef

log = structlog.get_logger()

# Ten minutes in all, for either.
PAUSES_S = (0.5, 2.0, *[10.0] * 60)
DISK_PAUSES_S = tuple(repeat(1.0, 600))


async def put_patiently(
    exchange: Exchange, store: str, bundle: Bundle, pauses_s: Sequence[float] = PAUSES_S
) -> DataRef:
    """Store a bundle, see `Exchange.put`. Raises StoreFull, or DiskFull, once all pauses for it are over."""
    for_store, for_disk = iter(pauses_s), iter(DISK_PAUSES_S)
    while True:
        try:
            return await exchange.put(store, bundle)
        except (StoreFull, DiskFull) as error:
            pause_s = next(for_disk if isinstance(error, DiskFull) else for_store, None)
            if pause_s is None:
                raise
            log.warning("room_awaited", reason=error.reason.name, store=store, pause_s=pause_s)
            await asyncio.sleep(pause_s)
