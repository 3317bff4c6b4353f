"""A gRPC server with health, reflection, keepalive, the error translation and an orderly end."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from triptych.address import Address
from triptych.rpc.channel import KEEPALIVE_OPTIONS, MESSAGE_BYTES, METADATA_BYTES
from triptych.rpc.guard import Guard, everyone
from triptych.rpc.reflection import add_reflection
from triptych.rpc.translation import ErrorTranslation
from triptych.tls import ServerCertificates, TlsFiles

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

IDLE_S = 300.0


class RpcServer:
    """One listening server. `address` is valid after `start`.

    `services` are the full names that health and reflection speak for ("triptych.v1.RouterService"). It starts out
    NOT_SERVING: `set_serving(True)` when ready. A connection without a call is closed after `idle_s`; its client
    connects anew for the next call. The guard is asked of every call of these services. With `tls` files
    everything is encrypted; if they name a `ca`, who calls must show a certificate of it.
    """

    def __init__(
        self,
        listen: str,
        services: Sequence[str],
        max_concurrent_calls: int = 4096,
        *,
        idle_s: float = IDLE_S,
        guard: Guard = everyone,
        tls: TlsFiles | None = None,
    ) -> None:
        self.address = listen
        self._listen = listen
        self._services = list(services)
        self._guard = guard
        self._tls = tls if tls is not None and tls.wanted else None
        self._max_concurrent_calls = max_concurrent_calls
        self._idle_s = idle_s
        self._health = health.aio.HealthServicer()
        self._server: grpc.aio.Server | None = None

    async def start(self, *register: Callable[[grpc.aio.Server], Any]) -> None:
        """Bind, register every servicer and serve. Raises `OSError` when the address cannot be bound, `TlsError`."""
        server = grpc.aio.server(
            interceptors=[ErrorTranslation(self._guard)],
            options=[
                *KEEPALIVE_OPTIONS,
                ("grpc.max_connection_idle_ms", round(self._idle_s * 1000)),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
                ("grpc.max_receive_message_length", MESSAGE_BYTES),
                ("grpc.max_metadata_size", METADATA_BYTES),
                ("grpc.absolute_max_metadata_size", METADATA_BYTES),
                # A second server on the same port must fail, not share it.
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=self._max_concurrent_calls,
        )
        for add in register:
            add(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        add_reflection([*self._services, health.SERVICE_NAME], server)
        self.address = self._bind(server)
        await self.set_serving(False)
        await server.start()
        self._server = server

    async def set_serving(self, serving: bool) -> None:
        """What `grpc.health.v1` answers, for the whole server ("") and each service."""
        for name in ["", *self._services]:
            await self._health.set(name, SERVING if serving else NOT_SERVING)

    async def stop(self, grace_s: float) -> None:
        """Say NOT_SERVING, refuse new calls, give running ones `grace_s` seconds, then cancel them."""
        if self._server is None:
            return
        await self.set_serving(False)
        await self._server.stop(grace_s)
        self._server = None

    def _bind(self, server: grpc.aio.Server) -> str:
        try:
            if self._tls is None:
                port = server.add_insecure_port(self._listen)
            else:
                port = server.add_secure_port(self._listen, ServerCertificates(self._tls).credentials())
        except RuntimeError as error:
            raise OSError(f"cannot listen on {self._listen}: {error}") from error
        return (
            self._listen if self._listen.startswith("unix:") else str(replace(Address.parse(self._listen), port=port))
        )
