"""Where a server is reached that listens everywhere."""

import socket
from urllib.parse import urlsplit

from triptych.address import Address

_NATS_PORT = 4222


def reachable_address(listening: str, nats_url: str) -> str:
    """The `host:port` to tell the other services: where it listens everywhere, this machine's on the way to NATS.

    Raises `OSError` where there is none: then one has to be named (`advertise`).
    """
    if listening.startswith("unix:"):
        return listening
    address = Address.parse(listening)
    if not address.is_everywhere:
        return listening
    nats = urlsplit(nats_url if "://" in nats_url else f"nats://{nats_url}")
    # On 0.0.0.0 nobody is heard who comes by IPv6; on [::] everyone is.
    family = socket.AF_INET if address.host and not address.is_ipv6 else socket.AF_UNSPEC
    try:
        host = _own_host(nats.hostname or Address("", 0).loopback, nats.port or _NATS_PORT, family)
    except OSError as error:
        why = f"no address of this machine is found on which {listening} hears who is beside {nats_url}: {error}"
        raise OSError(f"{why}; set advertise") from error
    return str(Address(host, address.port))


def _own_host(host: str, port: int, family: int) -> str:
    """This machine's address that leads to the first of a host's that can be reached."""
    error = OSError("no address")
    for kind, _, _, _, place in socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM):
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            try:
                # Sends nothing: asks the kernel.
                probe.connect(place)
                return _without_zone(str(probe.getsockname()[0]))
            except OSError as failure:
                error = failure
    raise error


def _without_zone(host: str) -> str:
    if "%" in host:
        raise OSError(f"{host} is of one link only")
    return host
