"""The accounts see what is wrong: a proof that cannot fail proves nothing."""

import pytest

from bench.trial.accounts import Accounts, flaws
from bench.trial.orders import Fate, Order
from triptych.v1.job_pb2 import JobCancelled, JobEvent, JobFailed, JobQueued, JobSpec, JobSucceeded, Output

QUEUED, SUCCEEDED, FAILED = (
    {"queued": JobQueued()},
    {"succeeded": JobSucceeded()},
    {"failed": JobFailed()},
)


def log(*kinds: dict[str, object], epochs: tuple[int, ...] = ()) -> list[JobEvent]:
    terms = epochs or (1,) * len(kinds)
    return [
        JobEvent(job_id="j", sequence=place, epoch=term, attempt=1, **kind)  # type: ignore[arg-type]
        for place, (kind, term) in enumerate(zip(kinds, terms, strict=True), start=1)
    ]


def output(index: int) -> dict[str, object]:
    return {"output": Output(index=index)}


def test_a_log_as_it_should_be_has_no_flaws() -> None:
    assert flaws(log(QUEUED, output(1), output(0), SUCCEEDED, epochs=(1, 1, 2, 2)), 2) == []


@pytest.mark.parametrize(
    ("events", "flaw"),
    [
        (log(QUEUED, output(0)), "not one end"),
        (log(QUEUED, output(0), SUCCEEDED, SUCCEEDED), "not one end"),
        (log(QUEUED, output(0), output(0), SUCCEEDED), "made twice"),
        (log(QUEUED, SUCCEEDED), "succeeded with the outputs []"),
        (log(QUEUED, output(0), SUCCEEDED)[1:], "gaps or doubles"),
        (log(QUEUED, output(0), SUCCEEDED, epochs=(2, 1, 2)), "older term"),
    ],
)
def test_a_flaw_is_seen(events: list[JobEvent], flaw: str) -> None:
    assert any(flaw in each for each in flaws(events, 1))


def closed(fate: Fate, *kinds: dict[str, object]) -> Accounts:
    accounts = Accounts()
    accounts.close(accounts.accept("j", Order(JobSpec(), fate), 0.0), log(*kinds), 1.0)
    return accounts


def test_ends_are_judged_by_the_jobs_fate() -> None:
    assert closed(Fate.KEPT, QUEUED, output(0), SUCCEEDED).sound
    assert closed(Fate.KEPT, QUEUED, FAILED).wrong["failed"] == 1
    assert closed(Fate.KEPT, QUEUED, {"cancelled": JobCancelled()}).wrong["wrong_end"] == 1
    assert closed(Fate.POISON, QUEUED, output(0), SUCCEEDED).wrong["wrong_end"] == 1
    assert not closed(Fate.CANCELLED, QUEUED, {"cancelled": JobCancelled()}).wrong


def test_an_event_that_changed_after_it_was_seen_is_a_double() -> None:
    accounts = Accounts()
    entry = accounts.accept("j", Order(JobSpec()), 0.0)
    accounts.see(entry, log(QUEUED)[0])
    accounts.close(entry, log(QUEUED, output(0), SUCCEEDED, epochs=(2, 2, 2)), 1.0)
    assert accounts.wrong["duplicated"] == 1


def test_what_is_not_over_or_not_listed_is_lost_and_what_nobody_ordered_is_a_double() -> None:
    accounts = closed(Fate.KEPT, QUEUED, output(0), SUCCEEDED)
    accounts.accept("k", Order(JobSpec()), 0.0)
    accounts.audit({"k", "stranger"})
    assert accounts.wrong == {"lost": 2, "duplicated": 1}


def test_an_event_that_came_after_the_end_is_a_double() -> None:
    accounts = closed(Fate.KEPT, QUEUED, output(0), SUCCEEDED)
    accounts.audit({"j"}, {"j": 3})
    assert accounts.sound
    accounts.audit({"j"}, {"j": 4})
    assert accounts.wrong == {"duplicated": 1}
