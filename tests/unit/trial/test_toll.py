"""A long job's faults are those that struck while it ran, and its own those that struck the denoiser that had it."""

from typing import Any

from bench.trial.accounts import Accounts, Entry
from bench.trial.faults import Fault, FaultKind
from bench.trial.orders import Order
from bench.trial.runs import Run, denoiser_runs
from bench.trial.saboteur import Strike
from bench.trial.toll import faults_borne, fewest_borne, long_jobs, own_faults_borne
from triptych.v1.job_pb2 import (
    STAGE_DECODE,
    STAGE_DENOISE,
    STAGE_ENCODE,
    JobEvent,
    JobQueued,
    JobRequeued,
    JobSpec,
    JobSucceeded,
    Output,
    Stage,
    StageStarted,
)


def started(stage: Stage.ValueType, worker: str) -> dict[str, Any]:
    return {"stage_started": StageStarted(stage=stage, worker_id=worker)}


def log(*at: tuple[int, dict[str, Any]]) -> list[JobEvent]:
    events = []
    for sequence, (second, kind) in enumerate(at, start=1):
        event = JobEvent(job_id="j", sequence=sequence, attempt=1, **kind)
        event.time.seconds = second
        events.append(event)
    return events


LOG = log(
    (10, {"queued": JobQueued()}),
    (20, started(STAGE_ENCODE, "encoder-0")),
    (30, started(STAGE_DENOISE, "denoiser-0")),
    (35, {"requeued": JobRequeued(stage=STAGE_ENCODE)}),
    (40, {"requeued": JobRequeued(stage=STAGE_DENOISE)}),
    (50, started(STAGE_DENOISE, "denoiser-1")),
    (60, started(STAGE_DECODE, "decoder-0")),
    (70, {"output": Output(index=0)}),
    (80, {"succeeded": JobSucceeded()}),
)


def strike(at_s: float, *struck: str) -> Strike:
    return Strike(Fault(1.0, FaultKind.KILL, struck), struck, at_s, 1.0)


STRIKES = [
    strike(15, "nats"),
    strike(25, "denoiser-0"),
    strike(30, "denoiser-0"),
    strike(45, "denoiser-0"),
    strike(55, "denoiser-0"),
    strike(65, "denoiser-1", "nats"),
    strike(81, "denoiser-1"),
]


def accounts_of(events: list[JobEvent]) -> tuple[Accounts, Entry]:
    accounts = Accounts()
    entry = accounts.accept("j", Order(JobSpec(), long=True), 5.0)
    for event in events[:-1]:
        accounts.see(entry, event)
    return accounts, entry


def test_runs_are_read_from_the_log() -> None:
    assert denoiser_runs(LOG) == [Run("denoiser-0", 30, 40), Run("denoiser-1", 50, 80)]


def test_faults_before_the_first_stage_and_after_the_end_do_not_count() -> None:
    accounts, entry = accounts_of(LOG)
    assert faults_borne(entry, STRIKES) == 6  # it goes on
    accounts.close(entry, LOG, 80.0)
    assert faults_borne(entry, STRIKES) == 5
    assert own_faults_borne(entry, STRIKES) == 2
    assert fewest_borne([entry], STRIKES) == 5
    assert long_jobs([entry], STRIKES)["own_denoiser_faults_each"] == {"min": 2, "median": 2, "max": 2}


def test_a_job_that_waits_bears_nothing_and_no_job_is_no_proof() -> None:
    _, entry = accounts_of(LOG[:2])
    assert faults_borne(entry, STRIKES) == 0
    assert fewest_borne([entry], STRIKES) is None
