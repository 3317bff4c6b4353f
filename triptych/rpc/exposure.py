"""A server that other machines can reach asks who calls, or says that it does not."""

import ipaddress


class Unprotected(ValueError):
    """A server would let anyone in who can reach it, and nobody said that it should."""


def refuse_unprotected(listen: str, protected: bool, insecure: bool, remedy: str) -> None:
    """Raise `Unprotected` for an address beyond this machine without protection, unless `insecure` is set.

    `remedy` says what would protect it.
    """
    if protected or insecure or is_loopback(listen):
        return
    raise Unprotected(
        f"listen: {listen} can be reached from other machines, and everyone who reaches it could use this service. "
        f"{remedy}; or listen on 127.0.0.1; or, where only who may use it can reach it, set insecure = true"
    )


def is_loopback(listen: str) -> bool:
    """Whether `host:port` is this machine's own; names other than localhost are taken to be everyone's."""
    host = listen.rpartition(":")[0].strip("[]")
    if listen.startswith("unix:") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
