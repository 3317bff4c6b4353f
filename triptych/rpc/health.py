"""Ask a server whether it serves: `python -m triptych.rpc.health [HOST:PORT]`, for health checks of containers.

Without an address it asks the server of its own container: TRIPTYCH_LISTEN. Exit status 0: SERVING; 1: anything else.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

ANSWER_TIMEOUT_S = 5.0
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}


def check(address: str, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
    """What `grpc.health.v1` says of the whole server at `host:port`: "SERVING", "NOT_SERVING", …

    Raises `grpc.RpcError` when nobody answers within `timeout_s`.
    """
    # Never through the proxy of a container's environment.
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def reachable(listen: str) -> str:
    """The address at which a server that listens on `host:port` is reached from its own machine."""
    host, _, port = listen.rpartition(":")
    return f"{_EVERYWHERE.get(host, host)}:{port}"


def main(arguments: Sequence[str]) -> int:
    """Check once, say the answer, return the exit status."""
    address = arguments[0] if arguments else reachable(os.environ.get("TRIPTYCH_LISTEN", ""))
    if address.endswith(":"):
        print("usage: python -m triptych.rpc.health HOST:PORT (or set TRIPTYCH_LISTEN)", file=sys.stderr)
        return 2
    try:
        status = check(address)
    except grpc.RpcError as error:
        print(f"{address}: {error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    print(f"{address}: {status}")
    return 0 if status == "SERVING" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
