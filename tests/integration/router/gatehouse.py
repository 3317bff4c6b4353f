"""A router that asks for tokens, and callers of every kind."""

from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message

from tests.integration.router.bench import Bench
from triptych.errors import Reason, TriptychError, from_rpc_error
from triptych.rpc import Credentials, open_channel
from triptych.tokens import new_token, token_entry
from triptych.v1.router_service_pb2_grpc import RouterServiceStub


class Gatehouse:
    """Makes calls of a router that asks for tokens, in the name of each caller of `write_tokens`, and of none."""

    def __init__(self, bench: Bench, tokens: dict[str, str]) -> None:
        self.bench = bench
        self.tokens = tokens

    async def answer(self, caller: str, method: str, request: Message) -> Reason | None:
        """What a caller's call is answered: None if it is served. Of a stream the first message counts."""
        try:
            await self.call(caller, method, request)
        except TriptychError as error:
            return error.reason
        return None

    async def call(self, caller: str, method: str, request: Message) -> Any:
        """The response; the first one of a stream. Raises `TriptychError`."""
        async with open_channel(self.bench.address, Credentials(token=self.tokens.get(caller))) as channel:
            call = getattr(RouterServiceStub(channel), method)(request, timeout=10)
            try:
                return await call.read() if hasattr(call, "read") else await call
            except grpc.aio.AioRpcError as error:
                raise from_rpc_error(error) from None


def write_tokens(path: Path, more: str = "") -> dict[str, str]:
    """A tokens file; the token of each caller."""
    callers = {
        "own": ("acme", ("submit", "read")),
        "reader": ("acme", ("read",)),
        "submitter": ("acme", ("submit",)),
        "other": ("rival", ("submit", "read")),
        "admin": ("operations", ("admin",)),
    }
    tokens = {name: new_token() for name in callers}
    entries = [token_entry(tokens[name], tenant, scopes) for name, (tenant, scopes) in callers.items()]
    path.write_text("\n".join(entries) + more)
    return {**tokens, "wrong": new_token()}
