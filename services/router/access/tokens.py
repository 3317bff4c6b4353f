"""The tokens that the router knows, and what each tenant may use: a file that can change while the router runs.

The file has the SHA-256 of each token, not the token; `triptych.tokens` says why that is enough.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import structlog

from services.router.access.principal import Principal, Scope
from triptych.config import ConfigError, load_toml
from triptych.tokens import is_tenant, token_hash

log = structlog.get_logger()

_SHA256 = re.compile(r"[0-9a-f]{64}")
_LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class TokenEntry:
    """One token: its hash, whose it is and what it is good for. `name` tells people which one it is."""

    sha256: str
    tenant: str
    scopes: tuple[str, ...]
    name: str = ""

    def __post_init__(self) -> None:
        if not _SHA256.fullmatch(self.sha256):
            raise ValueError(f"tokens: sha256: {self.sha256[:80]!r} is not 64 hexadecimal digits; `triptych token new`")
        if not is_tenant(self.tenant):
            raise ValueError(f"tokens: tenant: {self.tenant[:80]!r} is not 1 to 64 of A-Z, a-z, 0-9, _ and -")
        known = [scope.value for scope in Scope]
        if not self.scopes or not set(self.scopes) <= set(known):
            raise ValueError(f"tokens: scopes: {list(self.scopes)} must be some of {', '.join(known)}")


@dataclass(frozen=True)
class Quota:
    """What one tenant may use; unset: without a bound of its own.

    `max_jobs` and `max_queued_s` (estimated seconds) count its accepted jobs that are not over, `max_streams` its
    watches, generations and downloads. Submits, estimates and amendments together come at `calls_per_s`, up to `burst`
    at once.
    """

    max_jobs: int | None = None
    max_queued_s: float | None = None
    max_streams: int | None = None
    calls_per_s: float | None = None
    burst: int = 10

    def __post_init__(self) -> None:
        for name in ("max_jobs", "max_queued_s", "max_streams", "calls_per_s", "burst"):
            value = getattr(self, name)
            if value is not None and not (0 < value < math.inf):
                raise ValueError(f"tenants: {name}: must be above 0")


UNBOUNDED = Quota()


@dataclass(frozen=True)
class TokensFile:
    """The file: `[[tokens]]`, and `[tenants.NAME]` for quotas; `[tenants.default]` holds where a tenant has none."""

    tokens: tuple[TokenEntry, ...] = ()
    tenants: dict[str, Quota] = field(default_factory=dict)


class Tokens:
    """Who has which token. Sees whether the file has changed when asked for a token that it does not know, and at most
    once a second otherwise: a new token is good at once, and one that was taken away for a second more.

    A change that cannot be read leaves everything as it was, and is logged: a slip of an editor locks nobody out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._principals: Mapping[str, Principal] = {}
        self._quotas: Mapping[str, Quota] = {}
        self._stamp: tuple[int, int] = (0, 0)
        self._looked_s = -math.inf

    def load(self) -> None:
        """Read the file. Raises `ConfigError`."""
        self._stamp = self._stat()
        self._looked_s = monotonic()
        read = load_toml(TokensFile, self._path)
        principals = {
            entry.sha256: Principal(entry.tenant, frozenset(map(Scope, entry.scopes))) for entry in read.tokens
        }
        if len(principals) < len(read.tokens):
            raise ConfigError(f"{self._path}: tokens: one is there twice")
        self._principals, self._quotas = principals, read.tenants
        log.info("tokens_read", tokens=len(principals), tenants=len({who.tenant for who in principals.values()}))

    def reload(self) -> None:
        """Read the file again, or keep what was read before."""
        try:
            self.load()
        except ConfigError as error:
            log.error("tokens_unreadable", error=str(error))

    def holder(self, token: str) -> Principal | None:
        """Whose token it is; None if it is none."""
        digest = token_hash(token)
        if digest not in self._principals or monotonic() - self._looked_s >= _LOOK_EVERY_S:
            self._look()
        return self._principals.get(digest)

    def quota(self, tenant: str) -> Quota:
        """What the tenant may use."""
        return self._quotas.get(tenant) or self._quotas.get("default") or UNBOUNDED

    def _look(self) -> None:
        self._looked_s = monotonic()
        if self._stat() != self._stamp:
            self.reload()

    def _stat(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0)
        return (found.st_mtime_ns, found.st_ino)
