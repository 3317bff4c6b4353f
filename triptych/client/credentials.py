"""What a client shows a router: a token, and the certificates that it trusts."""

import os
from pathlib import Path

from triptych.address import is_bare_ipv6
from triptych.client.local_suite import LocalSuite, default_state_dir
from triptych.rpc import Credentials
from triptych.rpc.guard import read_token
from triptych.tls import TlsFiles

_TLS_SCHEME = "https://"


def find_credentials(address: str, token: str | None, tls: TlsFiles | None) -> Credentials:
    """What is given, else `TRIPTYCH_TOKEN`, `TRIPTYCH_CA`, `TRIPTYCH_CERTIFICATE` and `TRIPTYCH_KEY`.

    For the suite that runs here, what it left in its folder for its owner. An address that begins with "https://" means
    TLS with the public certificates where no others are named. Raises `ValueError` for files that cannot be used.
    """
    suite = LocalSuite.read(default_state_dir())
    if suite is None or not set(hosts_and_ports(address)) <= set(suite.address.split(",")):
        suite = None
    token = token or os.environ.get("TRIPTYCH_TOKEN")
    if not token and suite is not None and suite.token_file:
        token = read_token(Path(suite.token_file))
    return Credentials(tls=tls or _named_tls(suite, address), token=token or None)


def hosts_and_ports(address: str) -> list[str]:
    """The addresses, without their schemes. Raises `ValueError` when one is empty, or of IPv6 without brackets."""
    found = [each.strip().removeprefix(_TLS_SCHEME) for each in address.split(",")]
    if not all(found):
        raise ValueError(f"router: {address!r} names no address between its commas")
    for each in found:
        if is_bare_ipv6(each):
            raise ValueError(f"router: {each!r} is an IPv6 address, which stands in brackets: [::1]:7460")
    return found


def _named_tls(suite: LocalSuite | None, address: str) -> TlsFiles | None:
    certificate, key, ca = (_path(name) for name in ("CERTIFICATE", "KEY", "CA"))
    if suite is not None:
        ca = ca or (Path(suite.ca) if suite.ca else None)
        if certificate is None and key is None and suite.certificate:
            certificate, key = Path(suite.certificate), Path(suite.key)
    files = TlsFiles(certificate, key, ca)
    return files if files.wanted or _TLS_SCHEME in address else None


def _path(name: str) -> Path | None:
    value = os.environ.get(f"TRIPTYCH_{name}")
    return Path(value) if value else None
