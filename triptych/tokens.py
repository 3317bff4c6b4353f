"""Tokens of clients: made here, kept by their owners, known to the router by their hash alone."""

import hashlib
import json
import re
import secrets
from collections.abc import Sequence

SCOPES = ("submit", "read", "admin")
_TENANT = re.compile(r"[A-Za-z0-9_-]{1,64}")
# So that a token that ended up in the wrong place can be searched for.
_PREFIX = "triptych_"
_RANDOM_BYTES = 32


def new_token() -> str:
    """256 random bits, in 52 characters."""
    return _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def token_hash(token: str) -> str:
    """SHA-256, as the router's tokens file has it.

    A plain hash is enough: nobody searches 256 random bits. A slow one, made for what people can remember, would only
    make every call slow.
    """
    return hashlib.sha256(token.encode()).hexdigest()


def token_entry(token: str, tenant: str, scopes: Sequence[str], name: str = "") -> str:
    """A token's lines for the router's tokens file. Raises `ValueError` for a bad tenant, scope or name."""
    if not is_tenant(tenant):
        raise ValueError(f"tenant: {tenant[:80]!r} is not 1 to 64 of A-Z, a-z, 0-9, _ and -")
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise ValueError(f"scope: must be some of {', '.join(SCOPES)}")
    if not name.isprintable():
        raise ValueError("name: printable characters only, please")
    fields = {"sha256": token_hash(token), "tenant": tenant, "scopes": list(scopes), "name": name}
    # These values are written alike in JSON and in TOML.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items() if value]
    return "\n".join(["[[tokens]]", *lines, ""])


def is_tenant(name: str) -> bool:
    """Whether a tenant can be called so: it becomes part of keys in the store."""
    return _TENANT.fullmatch(name) is not None
