"""Ranks: the one number that a job gets at admission, lower runs first."""

from services.router.core.book import Book
from services.router.core.config import SchedulerConfig
from services.router.core.job import JobRequest
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
            start_tag = now + _tenant_debt_s(config, book, request, now, live_denoisers)
            return start_tag + config.kappa * estimate_s


def _tenant_debt_s(config: SchedulerConfig, book: Book, request: JobRequest, now: float, live_denoisers: int) -> float:
    """How long the tenant's fair share of the fleet is busy with those of its own jobs that would rank ahead.

    `φ · own / weight`, φ = sum of the weights of tenants with work, per live denoiser. Needs no state: a tenant that
    had the fleet to itself owes nothing once its jobs are done.
    """
    ledger = book.tenants.get(request.tenant)
    if ledger is None:
        return 0.0
    own_s = sum(ledger.ahead((now + config.kappa * request.seconds.total_s, "", 0)))
    weights = sum(config.tenant_weights.get(tenant, 1.0) for tenant in book.tenants)
    weight = config.tenant_weights.get(request.tenant, 1.0) * config.class_weights.get(request.priority_class, 1.0)
    return weights / max(1, live_denoisers) * own_s / weight
