"""Who may call: asked of every call of our own services, before its request is parsed."""

import hmac
import re
from collections.abc import Callable
from pathlib import Path

from triptych.errors import Reason, TriptychError
from triptych.rpc.typing import Context

# Lets a call of "/triptych.v1.RouterService/GetJob" in, or raises UNAUTHENTICATED or PERMISSION_DENIED.
Guard = Callable[[str, Context], None]

METADATA_KEY = "authorization"
_SCHEME = "bearer "
_TOKEN = re.compile(r"[\x21-\x7e]{16,256}")


def everyone(method: str, context: Context) -> None:
    """A guard that lets everyone in."""


def both(first: Guard, second: Guard) -> Guard:
    """A guard that lets in whom both let in."""

    def admit(method: str, context: Context) -> None:
        first(method, context)
        second(method, context)

    return admit


def bearer_token(context: Context) -> str | None:
    """The token that the caller sent as `authorization: Bearer TOKEN`; None if it sent none, or more than one."""
    sent = [value for key, value in context.invocation_metadata() or () if key == METADATA_KEY]
    if len(sent) != 1 or not isinstance(sent[0], str) or not sent[0].lower().startswith(_SCHEME):
        return None
    return sent[0][len(_SCHEME) :].strip()


def read_token(path: Path) -> str:
    """A file's token. Raises `ValueError`, naming the file, when there is none in it."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    if not _TOKEN.fullmatch(token):
        raise ValueError(f"{path}: holds no token: 16 to 256 printable characters without spaces are")
    return token


class SharedToken:
    """A guard that lets in whoever has the one token; compared in constant time."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def __call__(self, method: str, context: Context) -> None:
        given = bearer_token(context)
        if given is None or not hmac.compare_digest(given.encode(), self._token):
            raise TriptychError(Reason.UNAUTHENTICATED, "Only the router may call here; give it this worker's token.")


class PeerName:
    """A guard that lets in whoever showed a certificate with this DNS name. The server must ask for certificates."""

    def __init__(self, name: str) -> None:
        self._name = name.encode()

    def __call__(self, method: str, context: Context) -> None:
        if self._name not in context.auth_context().get("x509_subject_alternative_name", ()):
            raise TriptychError(
                Reason.PERMISSION_DENIED, f"Only who has a certificate for {self._name.decode()!r} may call here."
            )
