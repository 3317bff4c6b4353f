"""The way from a command to its router."""

import argparse
import contextlib
from collections.abc import AsyncIterator

from triptych.cli.failures import no_router
from triptych.client import Client
from triptych.errors import TriptychError


@contextlib.asynccontextmanager
async def router(args: argparse.Namespace) -> AsyncIterator[Client]:
    """A client of the router that the options name. An unreachable one is reported with its address."""
    async with Client(args.router) as client:
        try:
            yield client
        except TriptychError as error:
            raise no_router(client.address, error) from error
