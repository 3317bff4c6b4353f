"""Which router leads, as NATS knows it."""

import asyncio
from collections.abc import Mapping

import nats.errors
import nats.js.errors

from triptych.exchange import Exchange, ExchangeError

LOOK_EVERY_S = 0.1
_BUCKET, _KEY = "leader", "router"


async def find_leader(exchange: Exchange, addresses: Mapping[str, str]) -> str:
    """Name of the router that leads, of those whose addresses are given by name; waits until NATS names one.

    A leader that has died is named until another has taken over.
    """
    while True:
        holder = await _holder(exchange)
        for name, address in addresses.items():
            if address == holder:
                return name
        await asyncio.sleep(LOOK_EVERY_S)


async def _holder(exchange: Exchange) -> str:
    """The leader's address; "" while nobody leads, or NATS does not answer."""
    try:
        entry = await (await exchange.bucket(_BUCKET)).get(_KEY)
    except (ExchangeError, nats.errors.Error, nats.js.errors.Error):
        return ""
    return (entry.value or b"").decode().partition(" ")[0]
