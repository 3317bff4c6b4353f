"""The disk that NATS's streams are on: whether they fit, and what is done when it is full."""

import asyncio
import json
import shutil
from pathlib import Path

from triptych.exchange import ExchangeConfig
from triptych.exchange.connection import Connection
from triptych.supervisor.service import Service, ServiceState

# NATS is started again when so much is free: bytes, or such a part of a small disk.
_ROOM_BYTES = 64 << 20
_ROOM = 0.05
_LOOK_EVERY_S = 0.5
_GIB = 1 << 30


async def keep_writable(nats: Service, unwritable: asyncio.Event, folder: Path) -> None:
    """For ever: start nats-server again once it cannot write, as soon as the disk has room.

    A stream whose write has failed takes no other until then, however much room there is.
    """
    while True:
        await unwritable.wait()
        if has_room(folder):
            nats.recycle()
        elif nats.state is not ServiceState.BLOCKED:
            nats.block(f"the disk of {folder} is full: free some of it, and the suite goes on by itself")
        await asyncio.sleep(_LOOK_EVERY_S)


def has_room(folder: Path) -> bool:
    """Whether it is worth while to write there again."""
    disk = shutil.disk_usage(folder)
    return disk.free >= min(_ROOM_BYTES, _ROOM * disk.total)


async def shortage(config: ExchangeConfig, folder: Path) -> str | None:
    """What to say where NATS's streams may get larger than the disk has room for; None where they may not.

    Raises ExchangeUnavailable.
    """
    connection = Connection(config, "supervisor")
    await connection.open()
    try:
        account = json.loads((await connection.ask("$JS.API.INFO")).data)
    finally:
        await connection.close()
    reserved = account.get("reserved_storage", 0)
    room = account.get("storage", 0) + shutil.disk_usage(folder).free
    if reserved <= room:
        return None
    return (
        f"the stores may take {reserved / _GIB:.1f} GiB, and the disk of {folder} has room for {room / _GIB:.1f}: "
        "when it is full no job is taken; make room, or lower exchange.*_max_bytes"
    )
