"""What came out of a run: figures by class, by length and by tenant."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from services.router.simulate.percentiles import percentile
from services.router.simulate.simulation import Outcome, Run

IN_TIME = 5.0
"""A job is in time if it ends within so many times its own seconds after its arrival."""

_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_LENGTHS_S = (1.0, 10.0, 30.0, 60.0, 300.0)
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Counts:
    """Jobs that came, were refused, and ended in time."""

    jobs: int
    rejected: int
    in_time: int

    @property
    def goodput(self) -> float:
        """The share of all jobs that ended in time."""
        return self.in_time / self.jobs if self.jobs else 0.0

    @property
    def late_share(self) -> float:
        """The share of the accepted jobs that did not."""
        accepted = self.jobs - self.rejected
        return 1.0 - self.in_time / accepted if accepted else 0.0


def count(outcomes: Iterable[Outcome]) -> Counts:
    """Count what became of jobs."""
    known = list(outcomes)
    in_time = sum(outcome.latency_s <= IN_TIME * outcome.job.service_s for outcome in known)
    return Counts(len(known), sum(bool(outcome.refusal) for outcome in known), in_time)


def report(run: Run) -> dict[str, Any]:
    """All figures as plain values, in a fixed order. Times in seconds; a figure of no job is None.

    By class: waits until the denoise starts, delays beyond a job's own time, their ratio (the stretch), over jobs that
    succeeded. `tenant_goodput` is the mean of the tenants' goodput, `fairness` Jain's index over it: 1 if all are
    treated alike.
    """
    counts = count(run.outcomes)
    return {
        "policy": run.policy.name,
        "classes": {kind: _class(found) for kind, found in _grouped(run.outcomes, lambda o: o.job.kind)},
        "utilisation": _rounded(run.utilisation),
        "goodput": _rounded(counts.goodput),
        "late_share": _rounded(counts.late_share),
        "rejected": dict(sorted(Counter(o.refusal for o in run.outcomes if o.refusal).items())),
        "lengths": {name: _counts(found) for name, found in _by_length(run.outcomes)},
        "tenant_goodput": _rounded(tenant_goodput(run.outcomes)),
        "fairness": _rounded(fairness(run.outcomes)),
        "tenants": {tenant: _counts(found) for tenant, found in _grouped(run.outcomes, lambda o: o.job.tenant)},
    }


def tenant_goodput(outcomes: Sequence[Outcome]) -> float:
    """The share of a tenant's jobs that ended in time, as a mean in which each tenant counts the same."""
    shares = _tenant_shares(outcomes)
    return sum(shares) / len(shares)


def fairness(outcomes: Sequence[Outcome]) -> float:
    """Jain's index, (Σx)² / (n · Σx²), of the tenants' goodput; 1 if none has any."""
    shares = _tenant_shares(outcomes)
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def _tenant_shares(outcomes: Sequence[Outcome]) -> list[float]:
    return [count(found).goodput for _, found in _grouped(outcomes, lambda o: o.job.tenant)]


def length_name(service_s: float) -> str:
    """The class of jobs of about this length."""
    least_s = 0.0
    for most_s in _LENGTHS_S:
        if service_s < most_s:
            return f"{least_s:g}-{most_s:g} s"
        least_s = most_s
    return f"{least_s:g} s and more"


def _class(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    done = [outcome for outcome in outcomes if outcome.succeeded]
    waits = [outcome.wait_s for outcome in done if outcome.wait_s is not None]
    delays = [outcome.delay_s for outcome in done]
    stretches = [outcome.delay_s / outcome.job.service_s for outcome in done if outcome.job.service_s > 0]
    latencies = [outcome.latency_s for outcome in done]
    return {
        "jobs": len(outcomes),
        "rejected": sum(bool(outcome.refusal) for outcome in outcomes),
        "failed": sum(not outcome.refusal and not outcome.succeeded for outcome in outcomes),
        **{f"{name}_wait_s": _rounded(percentile(waits, q)) for name, q in _PERCENTILES.items()},
        **{f"{name}_delay_s": _rounded(percentile(delays, q)) for name, q in _PERCENTILES.items()},
        **{f"{name}_latency_s": _rounded(percentile(latencies, q)) for name, q in _PERCENTILES.items()},
        **{f"{name}_stretch": _rounded(percentile(stretches, q)) for name, q in _PERCENTILES.items()},
        "max_stretch": _rounded(max(stretches, default=None)),
    }


def _counts(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    counts = count(outcomes)
    return {
        "jobs": counts.jobs,
        "rejected": counts.rejected,
        "goodput": _rounded(counts.goodput),
        "late_share": _rounded(counts.late_share),
    }


def _by_length(outcomes: Sequence[Outcome]) -> list[tuple[str, list[Outcome]]]:
    """Groups by length, the shortest first."""
    groups = _grouped(outcomes, lambda outcome: length_name(outcome.job.service_s))
    return sorted(groups, key=lambda group: min(outcome.job.service_s for outcome in group[1]))


def _grouped(outcomes: Sequence[Outcome], key: Callable[[Outcome], str]) -> list[tuple[str, list[Outcome]]]:
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return sorted(groups.items())


def _rounded(value: float | None) -> float | None:
    """Without the digits that differ from one processor to another; -0.0 is 0."""
    return None if value is None else round(value, _DIGITS) + 0.0
