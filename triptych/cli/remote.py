"""The way from a command to its router."""

import argparse
import contextlib
from collections.abc import AsyncIterator

from triptych.cli.failures import EXIT_BAD_INPUT, Failure, no_router
from triptych.client import Client, TlsFiles
from triptych.errors import TriptychError


@contextlib.asynccontextmanager
async def router(args: argparse.Namespace) -> AsyncIterator[Client]:
    """A client of the router that the options name. An unreachable one is reported with its address."""
    tls = TlsFiles(ca=args.ca) if args.ca is not None else None
    async with contextlib.AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(Client(args.router, token=args.token, tls=tls))
        except ValueError as error:
            raise Failure(str(error), EXIT_BAD_INPUT) from error
        try:
            yield client
        except TriptychError as error:
            raise no_router(client.address, error) from error
