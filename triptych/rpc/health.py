"""Ask a server whether it serves: `python -m triptych.rpc.health [HOST:PORT]`, for health checks of containers.

Without an address it asks the server of its own container: TRIPTYCH_LISTEN; by TLS if there is a
TRIPTYCH_TLS__CERTIFICATE, which must name localhost too. Exit status 0: SERVING; 1: anything else.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from triptych.address import Address
from triptych.streams import fit_streams
from triptych.tls import TlsError, TlsFiles, channel_credentials

ANSWER_TIMEOUT_S = 5.0


def check(address: str, timeout_s: float = ANSWER_TIMEOUT_S, tls: TlsFiles | None = None) -> str:
    """What `grpc.health.v1` says of the whole server at `host:port`: "SERVING", "NOT_SERVING", …

    Raises `grpc.RpcError` when nobody answers within `timeout_s`, and `TlsError`.
    """
    with _channel(address, tls) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def _channel(address: str, tls: TlsFiles | None) -> grpc.Channel:
    # Never through the proxy of a container's environment.
    options: list[tuple[str, Any]] = [("grpc.enable_http_proxy", 0)]
    if tls is None:
        return grpc.insecure_channel(address, options=options)
    options.append(("grpc.ssl_target_name_override", "localhost"))
    return grpc.secure_channel(address, channel_credentials(tls), options=options)


def own_tls() -> TlsFiles | None:
    """What this container's server is asked with: its own files. A certificate without an authority trusts itself."""
    named = {name: os.environ.get(f"TRIPTYCH_TLS__{name}") for name in ("CERTIFICATE", "KEY", "CA")}
    certificate, key, ca = (Path(path) if path else None for path in named.values())
    return None if certificate is None else TlsFiles(certificate, key, ca or certificate)


def reachable(listen: str) -> str:
    """The address at which a server is reached from its own machine. Raises `ValueError` for what is no `host:port`."""
    return str(Address.parse(listen).here)


def main(arguments: Sequence[str]) -> int:
    """Check once, say the answer, return the exit status."""
    fit_streams()
    try:
        address = arguments[0] if arguments else reachable(os.environ.get("TRIPTYCH_LISTEN", ""))
    except ValueError as error:
        print(f"usage: python -m triptych.rpc.health HOST:PORT (or set TRIPTYCH_LISTEN): {error}", file=sys.stderr)
        return 2
    try:
        status = check(address, tls=own_tls())
    except TlsError as error:
        print(f"{address}: {error}", file=sys.stderr)
        return 1
    except grpc.RpcError as error:
        print(f"{address}: {error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    print(f"{address}: {status}")
    return 0 if status == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
