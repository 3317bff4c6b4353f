"""Seconds, and the messages that carry them."""

from math import isfinite

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

_NANOS = 10**9


def duration_of(seconds: float) -> Duration:
    """Seconds, 0 if negative or not finite, as a message."""
    made = Duration()
    made.FromNanoseconds(round(seconds * _NANOS) if isfinite(seconds) and seconds > 0 else 0)
    return made


def seconds_of(message: Duration | Timestamp) -> float:
    """What a message says: how long, or when since 1970."""
    return message.seconds + message.nanos / _NANOS


def seconds_within(duration: Duration, least_s: float, most_s: float) -> float | None:
    """What a client chose, in seconds; None if it is outside of these bounds, or written as no duration is."""
    seconds = seconds_of(duration)
    return seconds if 0 <= duration.nanos < _NANOS and least_s <= seconds <= most_s else None
