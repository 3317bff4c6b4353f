"""Ranks: the one number that a job gets at admission, lower runs first."""

from services.router.core.book import Book
from services.router.core.config import SchedulerConfig
from services.router.core.job import JobRequest
from services.router.core.peers import peer_key
from services.router.core.policy import POLICIES
from services.router.core.task import Key
from services.router.core.tenant import Tenant

_SHARE_IN_USE = 0.25
"""Up to this part of the fleet, a tenant's share is no less than what its work is of all unrun work."""


def rank_of(config: SchedulerConfig, book: Book, request: JobRequest, now: float, live_denoisers: int) -> float:
    """The rank of a job that comes now, in seconds on the clock of `now`; under "sjf" its estimate."""
    estimate_s = request.seconds.total_s
    match POLICIES[config.policy].rank:
        case "arrival":
            return now
        case "estimate":
            return estimate_s
        case "stretch":
            return _fair_rank(config, book, request, now, live_denoisers)


def crowding_s(config: SchedulerConfig, book: Book, request: JobRequest, key: Key, live_denoisers: int) -> float:
    """What the shares of the other tenants with work come to while the job's own tenant has what ranks ahead of `key`.

    Seconds of the fleet. 0 for who is alone, or has nothing ahead; longer jobs of a tenant find no less.
    """
    tenant = book.tenants.get(request.tenant)
    if tenant is None or not tenant.ledger:
        return 0.0
    own = config.tenant_weights.get(request.tenant, 1.0)
    others, weight = _weights(config, book) - own, own * _class_weight(config, request)
    return others / weight * tenant.ledger.ahead(key)[0] / max(1, live_denoisers)


def _fair_rank(config: SchedulerConfig, book: Book, request: JobRequest, now: float, live_denoisers: int) -> float:
    """When the job should begin: κ times its time from now, or when its tenant's turn comes, if that is later.

    The turn comes when the tenant's share of the fleet would have done those of its jobs that rank ahead, and the whole
    of it then this one. So a tenant is put off as if it had its share and no more, but only by what that comes to
    beyond the stretch that anyone may be asked to bear; no state is kept: who had the fleet alone owes nothing later.

    Never ahead of an earlier job of the tenant that is much the same (see `peers`): what one asks for twice comes in
    the order in which it was asked for, though what is ahead shrinks meanwhile.
    """
    estimate_s = request.seconds.total_s
    earliest = now + config.kappa * estimate_s
    tenant = book.tenants.get(request.tenant)
    if tenant is None:
        return earliest
    denoisers = max(1, live_denoisers)
    slope = _turns(config, book, request.tenant, tenant) / _class_weight(config, request) / denoisers
    peers = tenant.peers.get(peer_key(request))
    after = peers.last_rank(estimate_s) if peers is not None else earliest
    return max(after, tenant.ledger.first_gap(earliest, now + estimate_s / denoisers, slope))


def _turns(config: SchedulerConfig, book: Book, name: str, tenant: Tenant) -> float:
    """How many seconds the fleet works while a tenant with work gets one in its share.

    By weight, among the tenants with work. But most have a job or two, and will not use what is theirs: so a tenant is
    held to no less than the part that its own work is of all unrun work, as long as that is not more than a quarter.
    """
    by_weight = _weights(config, book) / config.tenant_weights.get(name, 1.0)
    if by_weight * _SHARE_IN_USE <= 1.0:
        return by_weight
    own_s = tenant.ledger.total()[0]
    by_work = book.unrun_s / own_s if own_s else by_weight
    return min(by_weight, max(by_work, 1.0 / _SHARE_IN_USE))


def _weights(config: SchedulerConfig, book: Book) -> float:
    """The sum over tenants with work."""
    named = sum(more - 1.0 for tenant, more in config.tenant_weights.items() if tenant in book.tenants)
    return len(book.tenants) + named


def _class_weight(config: SchedulerConfig, request: JobRequest) -> float:
    return config.class_weights.get(request.priority_class, 1.0)
