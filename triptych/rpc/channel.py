"""Channels, with the keepalive that the servers allow."""

import grpc

# Both ends agree: pings every 20 s, also while no call runs, and no GOAWAY for them.
KEEPALIVE_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
MESSAGE_BYTES = 4 * 1024 * 1024


def open_channel(address: str, *, through_proxy: bool = False) -> grpc.aio.Channel:
    """A channel to `host:port`. Nothing is sent before the first call. The caller closes it.

    Services talk to each other directly; `through_proxy` obeys `https_proxy` and its like, as a client should.
    """
    options = [
        *KEEPALIVE_OPTIONS,
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # Servers come and go on one address in tests and restarts: never share a broken connection between channels.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", int(through_proxy)),
    ]
    return grpc.aio.insecure_channel(address, options=options)
