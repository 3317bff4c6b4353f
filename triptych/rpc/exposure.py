"""A server that other machines can reach asks who calls, or says that it does not."""

from triptych.address import Address


class Unprotected(ValueError):
    """A server would let anyone in who can reach it, and nobody said that it should."""


def refuse_unprotected(listen: str, protected: bool, insecure: bool, remedy: str) -> None:
    """Raise `Unprotected` for an address beyond this machine without protection, unless `insecure` is set.

    `remedy` says what would protect it. Raises `ValueError` for what is no address.
    """
    try:
        own = is_loopback(listen)
    except ValueError as error:
        raise ValueError(f"listen: {error}") from None
    if protected or insecure or own:
        return
    raise Unprotected(
        f"listen: {listen} can be reached from other machines, and everyone who reaches it could use this service. "
        f"{remedy}; or listen on 127.0.0.1 or [::1]; or, where only who may use it can reach it, set insecure = true"
    )


def is_loopback(listen: str) -> bool:
    """Whether `host:port`, or `unix:path`, is this machine's own. Raises `ValueError` for what is no address."""
    return listen.startswith("unix:") or Address.parse(listen).is_loopback


def check_advertised(address: str | None) -> None:
    """Raise `ValueError` for what others could not be told as the address to call."""
    if address is None or address.startswith("unix:"):
        return
    try:
        advertised = Address.parse(address)
    except ValueError as error:
        raise ValueError(f"advertise: {error}") from None
    if advertised.is_everywhere or not advertised.port:
        raise ValueError(f"advertise: {address!r} is where to listen; name one host and its port")
