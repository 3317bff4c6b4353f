"""Who calls: a tenant and what its token lets it do."""

from contextvars import ContextVar, Token
from dataclasses import dataclass
from enum import Enum

# The tenant of everyone while the router asks for no tokens.
DEFAULT_TENANT = "default"


class Scope(Enum):
    """What a token may be good for. ADMIN has the others, and the jobs of all tenants."""

    SUBMIT = "submit"
    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller of one call."""

    tenant: str
    scopes: frozenset[Scope]

    @property
    def is_admin(self) -> bool:
        return Scope.ADMIN in self.scopes

    def may(self, needed: frozenset[Scope]) -> bool:
        """Whether it has every scope that is needed."""
        return self.is_admin or needed <= self.scopes

    def may_see(self, tenant: str) -> bool:
        """Whether what is this tenant's exists for the caller."""
        return self.is_admin or tenant == self.tenant


# Who calls where no tokens are asked for: the one tenant that there is then.
EVERYONE = Principal(DEFAULT_TENANT, frozenset(Scope))
_CALLER: ContextVar[Principal] = ContextVar("caller")


def caller() -> Principal:
    """Who made the call that this task serves. Raises `LookupError` outside of calls that were let in."""
    return _CALLER.get()


def set_caller(principal: Principal) -> Token[Principal]:
    """Say who made the call that this task serves."""
    return _CALLER.set(principal)
