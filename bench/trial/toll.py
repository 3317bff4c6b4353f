"""What the long jobs bore: how many faults struck while each ran, and how many struck its own denoiser. Pure."""

from collections.abc import Iterable, Sequence
from statistics import median

from bench.trial.accounts import Entry
from bench.trial.saboteur import Strike


def faults_borne(entry: Entry, strikes: Iterable[Strike]) -> int:
    """Faults that struck the suite since the job's first stage began, until its end or now."""
    if not entry.began_s:
        return 0
    return sum(entry.began_s <= strike.at_s and (not entry.end or strike.at_s <= entry.ended_s) for strike in strikes)


def own_faults_borne(entry: Entry, strikes: Iterable[Strike]) -> int:
    """Faults that struck the denoiser that had the job at that moment; of a job that is over."""
    return sum(
        any(run.worker in strike.struck and run.began_s <= strike.at_s <= run.ended_s for run in entry.runs)
        for strike in strikes
    )


def fewest_borne(entries: Iterable[Entry], strikes: Sequence[Strike]) -> int | None:
    """What the luckiest long job bore, of those that are over; None if none is."""
    return min((faults_borne(entry, strikes) for entry in _over(entries)), default=None)


def long_jobs(entries: Iterable[Entry], strikes: Sequence[Strike]) -> dict[str, object]:
    """The figures of the long jobs that are over."""
    over = _over(entries)
    return {
        "jobs": len(over),
        "faults_each": _spread([faults_borne(entry, strikes) for entry in over]),
        "own_denoiser_faults_each": _spread([own_faults_borne(entry, strikes) for entry in over]),
        "attempts_each": _spread([entry.attempts for entry in over]),
        "seconds_each": _spread([entry.ended_s - entry.accepted_s for entry in over]),
    }


def _over(entries: Iterable[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.order.long and entry.end]


def _spread(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    return {"min": round(min(values), 1), "median": round(median(values), 1), "max": round(max(values), 1)}
