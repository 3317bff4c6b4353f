"""What a failed call means."""

from collections.abc import Callable
from functools import partial

import grpc
import pytest

from services.router.core.events import ResultGone, TaskFailed
from services.router.core.job import Stage, Task
from services.router.workers.failures import Blow, judge
from triptych.errors import Reason, TriptychError
from triptych.exchange import BundleCorrupt, BundleGone
from triptych.v1.tensor_pb2 import DataRef

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
def test_a_job_whose_refined_latents_are_lost_is_tried_again(lost: Callable[[DataRef], TriptychError]) -> None:
    error = lost(DataRef(store="latents"))
    event_, _ = judge(DENOISE, True, grpc.StatusCode.UNKNOWN, error)
    assert event_ == TaskFailed(DENOISE, error.reason.name, error.message, retryable=True, counts=False)


def test_a_call_that_took_too_long_counts() -> None:
    error = TriptychError(Reason.UNREACHABLE, "Deadline Exceeded")
    event_, blow = judge(ENCODE, False, grpc.StatusCode.DEADLINE_EXCEEDED, error)
    assert isinstance(event_, TaskFailed)
    assert event_.counts
    assert blow is Blow.NONE
