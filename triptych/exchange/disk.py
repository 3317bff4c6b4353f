"""Tells a full disk from a slow server: nats-server does not answer a write that the disk had no room for."""

import json
from collections.abc import Awaitable
from functools import partial
from typing import TypeVar

from triptych.exchange.connection import Connection
from triptych.exchange.errors import DiskFull, ExchangeUnavailable
from triptych.tasks import checked

T = TypeVar("T")

_FULL = ("no space left on device", "disk quota exceeded")
# How long after a write it is time to ask why there is no answer.
SLOW_S = 0.5
# A subject that no stream has.
_NOTHING = "triptych.nothing"


def says_disk_full(why: str) -> bool:
    """Whether nats-server's words for an error are the operating system's for a full disk."""
    return any(words in why.lower() for words in _FULL)


async def written(writing: Awaitable[T], connection: Connection, stream: str) -> T:
    """The server's answer to a write to the stream. Raises what the write does, and what `check` does meanwhile."""
    return await checked(writing, partial(check, connection, stream), SLOW_S)


async def check(connection: Connection, stream: str) -> None:
    """Return if no write to the stream has failed since the server was started.

    From nats-server 2.14 on no write to that stream is answered until the server is started again, however much room
    there is by then. A purge, here of nothing, is answered with the error. Raises DiskFull, ExchangeUnavailable.
    """
    request = json.dumps({"filter": _NOTHING}).encode()
    answer = json.loads((await connection.ask(f"$JS.API.STREAM.PURGE.{stream}", request)).data)
    refuse(stream, answer.get("error"))


def refuse(stream: str, error: dict[str, str] | None) -> None:
    """Raise DiskFull or ExchangeUnavailable for an error that the server has answered; return if there is none."""
    if error is None:
        return
    why = error.get("description", "")
    if says_disk_full(why):
        raise DiskFull(stream)
    raise ExchangeUnavailable(f"stream {stream}: {why}")
