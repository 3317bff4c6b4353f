"""Channels, with the keepalive that the servers allow, TLS, and the token that their calls carry."""

from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Self

import grpc

from triptych.rpc.guard import METADATA_KEY
from triptych.tls import TlsFiles, channel_credentials

# Both ends agree: pings every 20 s, also while no call runs, and no GOAWAY for them.
KEEPALIVE_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
MESSAGE_BYTES = 4 * 1024 * 1024
# Headers of a call, and what follows its answer: `triptych.errors` keeps errors below it.
METADATA_BYTES = 16 * 1024
# How long calls may go on over a channel whose certificates have been replaced.
RENEWAL_GRACE_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a caller shows and whom it trusts. Without `tls` the channel is in clear.

    `token` goes with every call. `server_name` is the DNS name that the server's certificate must have, by default the
    address's.
    """

    tls: TlsFiles | None = None
    token: str | None = field(default=None, repr=False)
    server_name: str | None = None


OPEN = Credentials()


def open_channel(address: str, credentials: Credentials = OPEN, *, through_proxy: bool = False) -> grpc.aio.Channel:
    """A channel to `host:port`. Nothing is sent before the first call. The caller closes it. Raises `TlsError`.

    Services talk to each other directly; `through_proxy` obeys `https_proxy` and its like, as a client should.
    """
    options: list[tuple[str, Any]] = [
        *KEEPALIVE_OPTIONS,
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_metadata_size", METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", METADATA_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # Servers come and go on one address in tests and restarts: never share a broken connection between channels.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", int(through_proxy)),
    ]
    if credentials.tls is None:
        channel = grpc.aio.insecure_channel(address, options=options)
    else:
        if credentials.server_name is not None:
            options.append(("grpc.ssl_target_name_override", credentials.server_name))
        channel = grpc.aio.secure_channel(address, channel_credentials(credentials.tls), options=options)
    return channel if credentials.token is None else _TokenChannel(channel, credentials.token)


class _TokenChannel(grpc.aio.Channel):
    """A channel whose calls carry a token. gRPC's own call credentials refuse to travel without TLS."""

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self._channel = channel
        self._metadata = ((METADATA_KEY, f"Bearer {token}"),)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()

    def unary_unary(self, *path: Any, **how: Any) -> Any:
        return partial(self._channel.unary_unary(*path, **how), metadata=self._metadata)

    def unary_stream(self, *path: Any, **how: Any) -> Any:
        return partial(self._channel.unary_stream(*path, **how), metadata=self._metadata)

    def stream_unary(self, *path: Any, **how: Any) -> Any:
        return partial(self._channel.stream_unary(*path, **how), metadata=self._metadata)

    def stream_stream(self, *path: Any, **how: Any) -> Any:
        return partial(self._channel.stream_stream(*path, **how), metadata=self._metadata)
