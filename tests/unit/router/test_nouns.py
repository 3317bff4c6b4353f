"""The router's small parts: ids, the fold, the throttle, failures, jobs in memory, configuration."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.router import jobs as jobs_module
from services.router.config import RouterConfig
from services.router.core.events import ResultGone, TaskFailed
from services.router.core.job import JobRequest, Stage, StageSeconds, Task
from services.router.ids import check_job_id, check_request_id, new_job_id
from services.router.jobs import JobTable, LiveJob
from services.router.store.event_log import StoredEvent
from services.router.store.fold import apply, end_of
from services.router.store.throttle import ProgressThrottle
from services.router.workers.call import part_done
from services.router.workers.failures import Blow, judge
from triptych.config import ConfigError, load_toml
from triptych.endings import is_over
from triptych.errors import Reason, TriptychError
from triptych.exchange import BundleCorrupt, BundleGone
from triptych.v1 import job_pb2 as pb
from triptych.v1.tensor_pb2 import DataRef

ROOT = Path(__file__).parents[3]


def live(job_id: str, request_id: str = "") -> LiveJob:
    record = pb.JobRecord(job=pb.Job(job_id=job_id, tenant="default"), request_id=request_id)
    return LiveJob(record, pb.JobSpec(), JobRequest(job_id, "default", "m", "standard", StageSeconds(1, 1, 1)))


def event(sequence: int, **kind: Any) -> pb.JobEvent:
    return pb.JobEvent(sequence=sequence, **kind)


def test_ids_sort_by_time_and_are_their_own_check() -> None:
    ids = [new_job_id(now_s) for now_s in (0.0, 1.0, 1_700_000_000.0, 1_700_000_000.002, 4e9)]
    assert ids == sorted(ids)
    assert all(check_job_id(job_id) == job_id and len(job_id) == 26 for job_id in ids)
    assert len({new_job_id(5.0) for _ in range(1000)}) == 1000


@pytest.mark.parametrize("job_id", ["", "*", ">", "a.b", "0" * 25, "0" * 27, "O" * 26, "i" * 26, "0" * 26 + "\n"])
def test_what_never_was_a_job_id(job_id: str) -> None:
    with pytest.raises(TriptychError) as caught:
        check_job_id(job_id)
    assert caught.value.violations[0].field == "job_id"


def test_request_ids() -> None:
    for good in ("", "a", "A-Z_09", "x" * 64):
        assert check_request_id(good) == good
    for bad in ("x" * 65, "a b", "a.b", "a\n", "ä"):
        with pytest.raises(TriptychError):
            check_request_id(bad)


@pytest.mark.parametrize(
    "end",
    [
        {"succeeded": pb.JobSucceeded()},
        {"cancelled": pb.JobCancelled()},
        {"failed": pb.JobFailed(error={"code": 3, "message": "no"})},
    ],
)
def test_how_a_job_ended_outlives_its_log(end: dict[str, Any]) -> None:
    job, last = pb.Job(job_id="j", attempt=2), event(7, job_id="j", attempt=2, time={"seconds": 5}, **end)
    apply(job, last)
    assert end_of(job) == last


def test_a_job_is_what_its_log_tells() -> None:
    job = pb.Job(job_id="j")
    steps: list[tuple[dict[str, Any], int, int]] = [
        ({"queued": pb.JobQueued(pool="p", rank=2.0)}, pb.JOB_STATE_QUEUED, pb.STAGE_UNSPECIFIED),
        ({"stage_started": pb.StageStarted(stage=pb.STAGE_ENCODE)}, pb.JOB_STATE_QUEUED, pb.STAGE_ENCODE),
        ({"encoded": pb.JobEncoded(cached=True)}, pb.JOB_STATE_QUEUED, pb.STAGE_UNSPECIFIED),
        ({"stage_started": pb.StageStarted(stage=pb.STAGE_DENOISE)}, pb.JOB_STATE_RUNNING, pb.STAGE_DENOISE),
        ({"progress": pb.Progress(fraction=0.5)}, pb.JOB_STATE_RUNNING, pb.STAGE_DENOISE),
        ({"requeued": pb.JobRequeued(stage=pb.STAGE_DENOISE)}, pb.JOB_STATE_QUEUED, pb.STAGE_UNSPECIFIED),
        ({"stage_started": pb.StageStarted(stage=pb.STAGE_DENOISE)}, pb.JOB_STATE_RUNNING, pb.STAGE_DENOISE),
        ({"stage_started": pb.StageStarted(stage=pb.STAGE_DECODE)}, pb.JOB_STATE_RUNNING, pb.STAGE_DECODE),
        ({"requeued": pb.JobRequeued(stage=pb.STAGE_DECODE)}, pb.JOB_STATE_RUNNING, pb.STAGE_DECODE),
        ({"output": pb.Output(index=1)}, pb.JOB_STATE_RUNNING, pb.STAGE_DECODE),
        ({"output": pb.Output(index=0)}, pb.JOB_STATE_RUNNING, pb.STAGE_DECODE),
        ({"succeeded": pb.JobSucceeded()}, pb.JOB_STATE_SUCCEEDED, pb.STAGE_UNSPECIFIED),
    ]
    for sequence, (kind, state, stage) in enumerate(steps, 1):
        apply(job, event(sequence, attempt=2 if sequence > 6 else 1, **kind))
        assert (job.state, job.stage, job.last_sequence) == (state, stage, sequence)
        assert is_over(job) is (sequence == len(steps))
    assert (job.pool, job.rank, job.conditioning_cached, job.attempt) == ("p", 2.0, True, 2)
    assert [output.index for output in job.outputs] == [0, 1]


def test_progress_is_throttled_but_never_the_last_step() -> None:
    throttle = ProgressThrottle(0.25)
    first, second, last = (pb.Progress(fraction=fraction) for fraction in (0.1, 0.2, 1.0))
    assert throttle.offer(first, 10.0, busy=False) is first
    assert throttle.offer(second, 10.1, busy=False) is None
    assert throttle.take() is second
    assert throttle.take() is None
    assert throttle.offer(second, 20.0, busy=True) is None
    assert throttle.offer(last, 20.0, busy=True) is last
    assert throttle.take() is None


DENOISE, DECODE, ENCODE = Task("j", Stage.DENOISE), Task("j", Stage.DECODE), Task("j", Stage.ENCODE)


@pytest.mark.parametrize(
    ("task", "begun", "reason", "retryable", "counts", "blow"),
    [
        (DENOISE, True, Reason.UNREACHABLE, True, True, Blow.UNREACHABLE),
        (DENOISE, False, Reason.UNREACHABLE, True, False, Blow.UNREACHABLE),
        (DENOISE, False, Reason.DRAINING, True, False, Blow.UNWILLING),
        (DENOISE, False, Reason.NOT_READY, True, False, Blow.UNWILLING),
        (DENOISE, False, Reason.NO_SLOT, True, False, Blow.NONE),
        (ENCODE, False, Reason.EXCHANGE_UNAVAILABLE, True, False, Blow.NONE),
        (DENOISE, True, Reason.OUT_OF_MEMORY, True, True, Blow.NONE),
        (ENCODE, True, Reason.CONDITIONING_GONE, True, False, Blow.NONE),
        (DENOISE, True, Reason.STAGE_FAILED, False, True, Blow.NONE),
        (DECODE, True, Reason.STAGE_FAILED, True, True, Blow.NONE),
        (ENCODE, False, Reason.INVALID_FIELD, False, True, Blow.NONE),
        (ENCODE, False, Reason.MODEL_UNKNOWN, False, True, Blow.NONE),
        (DENOISE, False, Reason.STALE_EPOCH, True, False, Blow.DEPOSED),
    ],
)
def test_what_a_failed_call_means(
    task: Task, begun: bool, reason: Reason, retryable: bool, counts: bool, blow: Blow
) -> None:
    event_, found = judge(task, begun, grpc.StatusCode.UNKNOWN, TriptychError(reason, "why"))
    assert event_ == TaskFailed(task, reason.name, "why", retryable, counts)
    assert found is blow


def test_a_full_store_is_waited_for() -> None:
    event_, blow = judge(DECODE, True, grpc.StatusCode.RESOURCE_EXHAUSTED, TriptychError(Reason.STORE_FULL, "why"))
    assert event_ == TaskFailed(DECODE, "STORE_FULL", "why", retryable=True, counts=False, awaits_room=True)
    assert blow is Blow.NONE


@pytest.mark.parametrize(
    ("task", "error", "made_by"),
    [
        (DENOISE, BundleGone(DataRef(store="conditioning")), Stage.ENCODE),
        (DECODE, BundleGone(DataRef(store="conditioning")), Stage.ENCODE),
        (DECODE, BundleGone(DataRef(store="latents")), Stage.DENOISE),
        (DENOISE, BundleCorrupt(DataRef(store="conditioning"), "cut short"), Stage.ENCODE),
        (DECODE, BundleCorrupt(DataRef(store="conditioning"), "cut short"), Stage.ENCODE),
        (DECODE, BundleCorrupt(DataRef(store="latents"), "cut short"), Stage.DENOISE),
    ],
)
def test_input_that_is_gone(task: Task, error: TriptychError, made_by: Stage) -> None:
    event_, blow = judge(task, True, grpc.StatusCode.UNKNOWN, error)
    assert event_ == ResultGone(task, made_by)
    assert blow is Blow.NONE


@pytest.mark.parametrize("lost", [BundleGone, partial(BundleCorrupt, why="cut short")])
def test_what_a_job_refines_is_made_again_by_nobody(lost: Callable[[DataRef], TriptychError]) -> None:
    error = lost(DataRef(store="latents"))
    event_, _ = judge(DENOISE, True, grpc.StatusCode.UNKNOWN, error)
    assert event_ == TaskFailed(DENOISE, error.reason.name, error.message, retryable=False, counts=True)


def test_a_call_that_took_too_long_counts() -> None:
    error = TriptychError(Reason.UNREACHABLE, "Deadline Exceeded")
    event_, blow = judge(ENCODE, False, grpc.StatusCode.DEADLINE_EXCEEDED, error)
    assert isinstance(event_, TaskFailed)
    assert event_.counts
    assert blow is Blow.NONE


async def test_events_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "RECENT_EVENTS", 3)
    job = live("a")
    for sequence in range(1, 6):
        job.log(StoredEvent(sequence * 10, event(sequence, progress=pb.Progress(step=sequence))))
    assert job.after(1) is None
    assert [stored.event.sequence for stored in job.after(2) or []] == [3, 4, 5]
    assert [stored.event.sequence for stored in job.after(4) or []] == [5]
    assert job.after(5) == []
    assert job.after(99) == []
    assert job.log_revision == 50


async def test_ended_jobs_are_forgotten_the_oldest_first() -> None:
    table = JobTable(max_ended=2, ended_s=1000.0)
    made = [live(name, f"request-{name}") for name in "abc"]
    for job in made:
        table.add(job)
    assert list(table) == made
    for job in made:
        table.end(job)
    assert list(table) == []
    assert [table.get(name) for name in "abc"] == [None, made[1], made[2]]
    assert table.by_request("default", "request-a") is None
    assert table.by_request("default", "request-c") is made[2]


async def test_what_a_job_took_is_free_when_its_log_says_that_it_is_over() -> None:
    table = JobTable(max_ended=10, ended_s=1000.0)
    job = live("a")
    job.spec.attachments.add(data=b"x" * 10)
    table.add(job)
    assert (table.attachment_bytes, table.of_tenant("default")) == (10, [job])
    # Its record is not written yet.
    job.log(StoredEvent(1, event(1, succeeded=pb.JobSucceeded())))
    assert (table.attachment_bytes, table.of_tenant("default")) == (0, [])
    table.end(job)
    assert table.attachment_bytes == 0


async def test_ended_jobs_are_forgotten_after_a_while() -> None:
    table = JobTable(max_ended=10, ended_s=-1.0)
    job = live("a")
    table.add(job)
    table.end(job)
    assert table.get("a") is None


def test_the_example_configuration_is_the_default_one() -> None:
    assert load_toml(RouterConfig, ROOT / "deploy" / "router.toml") == RouterConfig()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("worker_timeout_s = 0", "worker_timeout_s"),
        ("page_size = 2000", "page_size"),
        ("drain_seconds = -1", "drain_seconds"),
        ("no_such_key = 1", "no_such_key"),
        ("[scheduler]\nkappa = -1", "kappa"),
    ],
)
def test_bad_configuration_is_named(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "router.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=named):
        load_toml(RouterConfig, file)


@pytest.mark.parametrize(
    ("fraction", "finished", "count", "done"),
    [(0.25, 0, 4, 0.25), (0.75, 2, 4, 0.5), (0.5, 2, 4, 0.0), (0.49, 2, 4, 0.0), (1.0, 3, 4, 1.0), (1.0, 4, 4, 1.0)],
)
def test_outputs_that_were_finished_before_a_call_are_none_of_its_progress(
    fraction: float, finished: int, count: int, done: float
) -> None:
    assert part_done(fraction, finished, count) == done
