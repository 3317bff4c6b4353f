"""Ranks: the one number that a job gets at admission, lower runs first."""

from services.router.core.book import Book
from services.router.core.config import SchedulerConfig
from services.router.core.job import JobRequest
from services.router.core.peers import peer_key
from services.router.core.policy import POLICIES
from services.router.core.task import Key

_SHARE_STRETCH = 2.0
"""A job whose tenant's share is all taken is done in so many times its time after that: what runs is in the way too."""


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
    others = _weights(config, book) - config.tenant_weights.get(request.tenant, 1.0)
    return others / _weight(config, request) * tenant.ledger.ahead(key)[0] / max(1, live_denoisers)


def _fair_rank(config: SchedulerConfig, book: Book, request: JobRequest, now: float, live_denoisers: int) -> float:
    """When the job should be done: κ times its time from now, or when its tenant's share does it, if that is later.

    That is `start_tag + κ · estimate` with `start_tag = now + max(0, φ · own / weight - (κ - 2) · estimate)`. `own`:
    the unrun seconds of those jobs of the tenant that rank ahead. `φ`: the sum of the weights of tenants with work, per
    live denoiser. A tenant is put off as if it had its fair share and no more, but only by what that comes to beyond
    the stretch that anyone may be asked to bear; no state is kept, so who had the fleet alone owes nothing later.

    Never ahead of an earlier job of the tenant that is much the same (see `peers`): what one asks for twice comes in
    the order in which it was asked for, though what is ahead shrinks meanwhile.
    """
    estimate_s = request.seconds.total_s
    earliest = now + config.kappa * estimate_s
    tenant = book.tenants.get(request.tenant)
    if tenant is None:
        return earliest
    slope = _weights(config, book) / max(1, live_denoisers) / _weight(config, request)
    peers = tenant.peers.get(peer_key(request))
    after = peers.last_rank(estimate_s) if peers is not None else earliest
    return max(after, tenant.ledger.first_gap(earliest, now + min(_SHARE_STRETCH, config.kappa) * estimate_s, slope))


def _weights(config: SchedulerConfig, book: Book) -> float:
    """The sum over tenants with work."""
    named = sum(more - 1.0 for tenant, more in config.tenant_weights.items() if tenant in book.tenants)
    return len(book.tenants) + named


def _weight(config: SchedulerConfig, request: JobRequest) -> float:
    tenant = config.tenant_weights.get(request.tenant, 1.0)
    return tenant * config.class_weights.get(request.priority_class, 1.0)
