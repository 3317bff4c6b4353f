"""A call that waits for a router that leads."""

import asyncio

import pytest

from services.router.leadership.forward import Forward, Own
from services.router.leadership.lease import Leadership
from triptych.exchange import Exchange, ExchangeConfig
from triptych.rpc import Credentials

OWN = "127.0.0.1:1"


@pytest.fixture
def leadership() -> Leadership:
    """Of a router that knows of none that leads, itself included."""
    return Leadership(Exchange(ExchangeConfig()), OWN, ttl_s=1.0)


async def test_a_change_of_the_next_moment_is_not_missed(leadership: Leadership) -> None:
    asyncio.get_running_loop().call_soon(leadership.open)
    waiting = asyncio.ensure_future(leadership.change())  # begins after that
    await asyncio.wait_for(waiting, 1.0)


async def test_a_call_that_comes_the_moment_before_a_router_leads_does_not_wait(leadership: Leadership) -> None:
    forward = Forward(leadership, OWN, Credentials())
    asyncio.get_running_loop().call_soon(leadership.open)
    with pytest.raises(Own):
        async with asyncio.timeout(1.0):
            await forward.leave("a job", "a call", ())
    await forward.close()
