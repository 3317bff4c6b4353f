"""How long, and how often, a router that does not answer is asked again."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from triptych.errors import Reason, TriptychError, from_rpc_error

# The call did not happen, or may be made again without harm: reads, cancels, and submits under one request id.
PASSING = frozenset({Reason.UNREACHABLE, Reason.NOT_READY, Reason.EXCHANGE_UNAVAILABLE, Reason.DRAINING})


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds of the retries, in seconds.

    `connect_s` holds until the router has answered once, so that a wrong address is told soon; `reconnect_s` after
    that, long enough for a router to be restarted. Pauses double from `first_pause_s` to `max_pause_s`, with jitter.
    """

    connect_s: float = 1.0
    reconnect_s: float = 60.0
    first_pause_s: float = 0.1
    max_pause_s: float = 2.0


class Retries:
    """The tries of one call.

    `turn` makes the next try go to another router, and says whether there is one: the first time it is made at once.
    """

    def __init__(self, patience: Patience, limit_s: float, turn: Callable[[], bool] = lambda: False) -> None:
        self._turn = turn
        self._turned = False
        self._patience = patience
        self._limit_s = limit_s
        self._pause_s = patience.first_pause_s
        self._spent_s = 0.0

    async def pause(self, error: TriptychError) -> None:
        """Wait before the next try. Raises `error` when it would not pass by itself, or when time is up."""
        if error.reason not in PASSING or self._spent_s >= self._limit_s:
            raise error
        if self._turn() and not self._turned:
            self._turned = True
            return
        pause_s = min(self._pause_s * random.uniform(0.75, 1.25), self._limit_s - self._spent_s)
        self._spent_s += pause_s
        self._pause_s = min(2 * self._pause_s, self._patience.max_pause_s)
        await asyncio.sleep(pause_s)


def interruption(failure: grpc.aio.AioRpcError) -> TriptychError:
    """A server that ends cancels the streams it still has: to us that is a broken stream, not a cancelled job."""
    error = from_rpc_error(failure)
    if error.reason is Reason.CANCELLED:
        return TriptychError(Reason.UNREACHABLE, error.message)
    return error
