"""`host:port` as it is written everywhere: taken apart, judged and put together in this one place."""

import ipaddress
import re
from dataclasses import dataclass

_MAX_PORT = 65535
_NAME = re.compile(r"[^\s\[\]/@%:]*")
_PORT = re.compile(r"[0-9]{1,5}")
_IPV4_HERE, _IPV6_HERE = "127.0.0.1", "::1"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, or is reached. `host` is a name, an address without brackets, or "": everywhere."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Of "host:port", ":port" and "[IPv6 address]:port". Raises `ValueError`, which says what is wrong."""
        host, _, port = text.rpartition(":")
        if not _PORT.fullmatch(port) or int(port) > _MAX_PORT:
            raise ValueError(f"{text!r} is not HOST:PORT{_hint(text)}")
        if "%" in host:
            raise ValueError(f"{text!r}: an address of one link, with a zone (%), is not supported; take another")
        if host.startswith("[") and host.endswith("]") and _is_ipv6(host[1:-1]):
            return cls(host[1:-1], int(port))
        if not _NAME.fullmatch(host):
            raise ValueError(f"{text!r} is not HOST:PORT{_hint(text)}")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.is_ipv6 else f"{self.host}:{self.port}"

    @property
    def is_ipv6(self) -> bool:
        """Whether the host is an IPv6 address, not a name."""
        return ":" in self.host

    @property
    def is_everywhere(self) -> bool:
        """Whether a server there listens on all of its machine's addresses."""
        address = self._ip
        return not self.host or (address is not None and address.is_unspecified)

    @property
    def is_loopback(self) -> bool:
        """Whether nobody but this machine can reach it; names other than localhost are taken to be everyone's."""
        address = self._ip
        return self.host.lower() == "localhost" if address is None else address.is_loopback

    @property
    def here(self) -> "Address":
        """How this machine itself reaches a server that listens there."""
        return Address(self.loopback, self.port) if self.is_everywhere else self

    @property
    def loopback(self) -> str:
        """This machine's own address, of the host's family."""
        return _IPV6_HERE if self.is_ipv6 else _IPV4_HERE

    @property
    def _ip(self) -> "ipaddress.IPv4Address | ipaddress.IPv6Address | None":
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            return None
        return getattr(address, "ipv4_mapped", None) or address


def is_bare_ipv6(text: str) -> bool:
    """Whether it is an IPv6 address without its brackets, with a port or without: nobody could tell which."""
    return _is_ipv6(text.partition("%")[0]) or _is_ipv6(text.rpartition(":")[0].partition("%")[0])


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _hint(text: str) -> str:
    return "; an IPv6 address stands in brackets: [::1]:7460" if is_bare_ipv6(text) or "[" in text else ""
