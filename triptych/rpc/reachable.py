"""Where a server is reached that listens everywhere."""

import socket
from urllib.parse import urlsplit

_EVERYWHERE = ("0.0.0.0", "[::]", "")


def reachable_address(listening: str, nats_url: str) -> str:
    """The `host:port` to tell the other services: where it listens everywhere, this machine's on the way to NATS."""
    host, _, port = listening.rpartition(":")
    if host not in _EVERYWHERE:
        return listening
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Sends nothing: asks the kernel which of our addresses leads to NATS.
        nats = urlsplit(nats_url)
        probe.connect((nats.hostname or "127.0.0.1", nats.port or 4222))
        return f"{probe.getsockname()[0]}:{port}"
