"""What each call of the router's contract asks of its caller. A call that is not in the table is for nobody."""

from services.router.access.principal import EVERYONE, Principal, Scope, set_caller
from services.router.access.quotas import Quotas
from services.router.access.tokens import Tokens
from triptych.errors import Reason, TriptychError
from triptych.rpc.guard import Guard, bearer_token
from triptych.rpc.typing import Context

_ANY: frozenset[Scope] = frozenset()
_READ = frozenset({Scope.READ})
_SUBMIT = frozenset({Scope.SUBMIT})

NEEDED_SCOPES: dict[str, frozenset[Scope]] = {
    "SubmitJob": _SUBMIT,
    "AmendJob": _SUBMIT,
    "CancelJob": _SUBMIT,
    "EstimateJob": _SUBMIT,
    "GenerateMedia": _SUBMIT | _READ,
    "WatchJob": _READ,
    "GetJob": _READ,
    "ListJobs": _READ,
    "DownloadOutput": _READ,
    "ListModels": _ANY,
    "GetFleet": _ANY,
    "WatchFleet": _ANY,
}
# Calls that ask for work, or for working something out: they count for a tenant's rate.
COUNTED = frozenset({"SubmitJob", "GenerateMedia", "AmendJob", "EstimateJob"})


def open_to_everyone(method: str, context: Context) -> None:
    """The guard of a router that asks for no tokens: everyone is the one tenant there is, and may do everything."""
    _needed(method)
    set_caller(EVERYONE)


def for_tokens(tokens: Tokens, quotas: Quotas) -> Guard:
    """The guard of a router that asks for tokens: raises UNAUTHENTICATED, PERMISSION_DENIED and QUOTA_EXCEEDED."""

    def admit(method: str, context: Context) -> None:
        principal = _authenticated(tokens, context)
        needed = _needed(method)
        if not principal.may(needed):
            scopes = " and ".join(sorted(scope.value for scope in needed))
            raise TriptychError(
                Reason.PERMISSION_DENIED,
                f"This call needs a token with the scope {scopes}.",
                metadata={"scope": scopes},
            )
        if _name(method) in COUNTED:
            quotas.count_call(principal.tenant)
        set_caller(principal)

    return admit


def _authenticated(tokens: Tokens, context: Context) -> Principal:
    token = bearer_token(context)
    if token is None:
        why = "This router asks for a token: send it as the metadata `authorization: Bearer TOKEN`"
        raise TriptychError(Reason.UNAUTHENTICATED, f"{why} (TRIPTYCH_TOKEN, or --token).")
    principal = tokens.holder(token)
    if principal is None:
        raise TriptychError(Reason.UNAUTHENTICATED, "This token is not known here, or no longer.")
    return principal


def _needed(method: str) -> frozenset[Scope]:
    needed = NEEDED_SCOPES.get(_name(method))
    if needed is None:
        raise TriptychError(Reason.PERMISSION_DENIED, f"{_name(method)} is for nobody.")
    return needed


def _name(method: str) -> str:
    return method.rpartition("/")[2]
