"""Writes to JetStream that only the owner of the last one can make: compare and set on a subject's last message."""

from collections.abc import Iterator
from contextlib import contextmanager

import nats.errors
import nats.js.errors
from nats.js import JetStreamContext

from triptych.exchange import ExchangeUnavailable, StoreFull
from triptych.exchange.store import says_full

# nats-server's codes.
_WRONG_LAST = frozenset({10071, 10164})


class Conflict(Exception):
    """Another writer was here since: this one's idea of the last message is out of date."""


async def publish(jetstream: JetStreamContext, subject: str, payload: bytes, *, last: int) -> int:
    """Store one message if the subject's last one has the stream sequence `last` (0: none); returns its own.

    Raises Conflict, StoreFull, ExchangeUnavailable. After the latter the message may be stored, or not.
    """
    with translated(subject):
        headers = {"Nats-Expected-Last-Subject-Sequence": str(last)}
        return int((await jetstream.publish(subject, payload, headers=headers)).seq)


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
        raise ExchangeUnavailable(f"{what}: {why}") from error
    except nats.errors.Error as error:
        raise ExchangeUnavailable(f"{what}: {error!r}") from error
