"""Writes to JetStream that only the owner of the last one can make: compare and set on a subject's last message."""

from collections.abc import Iterator
from contextlib import contextmanager

import nats.errors
import nats.js.errors
from nats.js.kv import KeyValue

from triptych.exchange import DiskFull, Exchange, ExchangeUnavailable, StoreFull
from triptych.exchange.disk import says_disk_full
from triptych.exchange.store import says_full

# nats-server's codes.
_WRONG_LAST = frozenset({10071, 10164})


class Conflict(Exception):
    """Another writer was here since: this one's idea of the last message is out of date."""


async def publish(exchange: Exchange, stream: str, subject: str, payload: bytes, *, last: int) -> int:
    """Store one message if the subject's last one has the stream sequence `last` (0: none); returns its own.

    Raises Conflict, StoreFull, DiskFull, ExchangeUnavailable. After the latter the message may be stored, or not.
    """
    with translated(stream):
        headers = {"Nats-Expected-Last-Subject-Sequence": str(last)}
        publishing = exchange.jetstream.publish(subject, payload, headers=headers)
        return int((await exchange.written(stream, publishing)).seq)


async def put(exchange: Exchange, name: str, bucket: KeyValue, key: str, value: bytes, *, last: int) -> int:
    """Write a key of the bucket `name` if its last revision is `last` (0: none); returns the new one.

    Raises what `publish` does.
    """
    with translated(name):
        writing = bucket.update(key, value, last=last) if last else bucket.create(key, value)
        return int(await exchange.written(f"KV_{name}", writing))


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turns what nats-py raises into Conflict and the exchange's own errors."""
    try:
        yield
    except nats.js.errors.KeyWrongLastSequenceError as error:
        raise Conflict(what) from error
    except nats.js.errors.APIError as error:
        why = error.description or ""
        if error.err_code in _WRONG_LAST:
            raise Conflict(what) from error
        if says_full(error.err_code, why):
            raise StoreFull(what) from error
        if says_disk_full(why):
            raise DiskFull(what) from error
        raise ExchangeUnavailable(f"{what}: {why}") from error
    except nats.errors.Error as error:
        raise ExchangeUnavailable(f"{what}: {error!r}") from error
