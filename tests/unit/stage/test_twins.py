"""Which of two workers with one id ends: the same for both, and only once each knows that the other lives."""

from itertools import permutations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from services.stage.twins import Twins
from triptych.v1.worker_pb2 import (
    WORKER_STATE_DRAINING,
    WORKER_STATE_LOADING,
    WORKER_STATE_READY,
    WorkerHeartbeat,
    WorkerState,
)

LOADING, READY, DRAINING = WORKER_STATE_LOADING, WORKER_STATE_READY, WORKER_STATE_DRAINING


def beat(
    start_s: int, state: WorkerState.ValueType, heard: int | None = None, address: str = "here:1"
) -> WorkerHeartbeat:
    """Of a worker that was started then; `heard`: when the twin was that it has heard."""
    twin = Timestamp(seconds=heard) if heard is not None else None
    return WorkerHeartbeat(
        worker_id="x", address=address, start_time=Timestamp(seconds=start_s), state=state, twin_start_time=twin
    )


STAYS = [
    (beat(1, LOADING), beat(2, LOADING)),
    (beat(1, READY), beat(2, READY)),
    (beat(2, READY), beat(1, LOADING)),  # the clock of its host is behind
    (beat(1, READY, address="a:1"), beat(1, READY, address="b:1")),
    (beat(2, DRAINING), beat(1, LOADING)),
]


@pytest.mark.parametrize(("stays", "goes"), STAYS)
def test_one_ends_and_the_other_answers_it(stays: WorkerHeartbeat, goes: WorkerHeartbeat) -> None:
    first, later = Twins(), Twins()
    assert first.hear(stays, goes.SerializeToString())
    assert not first.hear(stays, goes.SerializeToString())  # once is enough
    stays.twin_start_time.CopyFrom(first.newest)
    assert not later.hear(goes, stays.SerializeToString())
    assert first.refused is None
    assert stays.address in str(later.refused)
    assert goes.address in str(later.refused)


def test_a_heartbeat_alone_ends_nobody() -> None:
    """It may be of one that is dead by now."""
    for heard in (None, 1):
        twins = Twins()
        twins.hear(beat(2, LOADING), beat(1, READY, heard).SerializeToString())
        assert twins.refused is None


def test_its_own_heartbeats_and_rubbish_are_none_of_a_twin() -> None:
    twins = Twins()
    for data in (beat(1, LOADING).SerializeToString(), b"\xff"):
        assert not twins.hear(beat(1, READY), data)
    assert twins.newest is None


def test_of_any_two_one_ends() -> None:
    beats = [beat(start_s, state) for start_s in (1, 2) for state in (LOADING, READY)]
    for one, other in permutations(beats, 2):
        if one.start_time == other.start_time:
            continue
        ends = []
        for own, heard in ((one, other), (other, one)):
            twins = Twins()
            told = WorkerHeartbeat()
            told.CopyFrom(heard)
            told.twin_start_time.CopyFrom(own.start_time)
            twins.hear(own, told.SerializeToString())
            ends.append(twins.refused is not None)
        assert sorted(ends) == [False, True]
