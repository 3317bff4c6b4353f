"""Ranks: the one number that a job gets at admission, lower runs first."""

from services.router.core.book import Book
from services.router.core.config import SchedulerConfig
from services.router.core.job import JobRequest
from services.router.core.peers import peer_key
from services.router.core.policy import POLICIES


def rank_of(config: SchedulerConfig, book: Book, request: JobRequest, now: float, live_denoisers: int) -> float:
    """The rank of a job that comes now, in seconds on the clock of `now`; under "sjf" its estimate."""
    estimate_s = request.seconds.total_s
    match POLICIES[config.policy].rank:
        case "arrival":
            return now
        case "estimate":
            return estimate_s
        case "stretch":
            return _fair_rank(config, book, request, now + config.kappa * estimate_s, live_denoisers)


def _fair_rank(config: SchedulerConfig, book: Book, request: JobRequest, earliest: float, live_denoisers: int) -> float:
    """The earliest rank, put off for as long as the tenant's jobs up to that rank take in its share of the fleet.

    Never ahead of an earlier job of the tenant that is much the same (see `peers`): what one asks for twice comes in
    the order in which it was asked for, though what is ahead shrinks meanwhile.

    That is `start_tag + κ · estimate` with `start_tag = now + φ · own / weight`. `own`: the unrun seconds of those jobs
    of the tenant that rank ahead. `φ`: the sum of the weights of tenants with work, per live denoiser. A tenant is
    tagged as if it had its fair share and no more; no state is kept, so who had the fleet alone owes nothing later.
    """
    tenant = book.tenants.get(request.tenant)
    if tenant is None:
        return earliest
    named = sum(more - 1.0 for tenant, more in config.tenant_weights.items() if tenant in book.tenants)
    weights = len(book.tenants) + named
    weight = config.tenant_weights.get(request.tenant, 1.0) * config.class_weights.get(request.priority_class, 1.0)
    peers = tenant.peers.get(peer_key(request))
    after = peers.last_rank(request.seconds.total_s) if peers is not None else earliest
    return max(after, tenant.ledger.first_gap(earliest, weights / max(1, live_denoisers) / weight))
